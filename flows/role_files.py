"""deployments/kustomize/rbac: the rights of every stage of profile `study`, written by `make docs`."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from infra.cluster.port import Object
from tasks.profile import load_profile
from tasks.rights import STAGES
from tasks.roles import Account, lent_namespaces, roles

FOLDER = Path(__file__).parents[1] / "deployments" / "kustomize" / "rbac"
HOME = "virtscale-system"
"""Namespace of the accounts, and of what runs under them."""
GENERATED = """\
# written by `make docs` (flows/role_files.py); do not edit: `virtscale roles` prints those of your profile
"""
NAMESPACES, KUSTOMIZATION = "namespaces.yaml", "kustomization.yaml"
STUDY = Account(HOME, "virtscale-study")
"""Has the rights of all stages of a study; each stage has an account of its own beside it."""


def files() -> dict[str, str]:
    """Name to content."""
    profile = load_profile("study", ())
    places = [*lent_namespaces(profile), STUDY.home, STUDY.manifest]
    texts = {NAMESPACES: as_yaml(places)}
    for stage in STAGES:
        own = Account(HOME, f"virtscale-{stage}")
        accounts = [own, STUDY] if stage in profile.stages else [own]
        texts[f"{stage}.yaml"] = as_yaml([own.manifest, *roles(stage, profile, accounts)])
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    texts[KUSTOMIZATION] = as_yaml([{**head, "resources": list(texts)}])
    return {name: GENERATED + text for name, text in texts.items()}


def as_yaml(manifests: Iterable[Object]) -> str:
    """One document per manifest, without anchors."""
    return yaml.dump_all(manifests, Dumper=_Plain, sort_keys=False, default_flow_style=False)


class _Plain(yaml.SafeDumper):
    """Writes an object that is used twice, twice."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True
