"""Rights as Kubernetes objects: a stage's Roles and ClusterRole, who has them, and where."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from infra.cluster.kinds import NAMESPACE, ROLE, ROLE_BINDING
from infra.cluster.port import Object
from infra.manifests import LENT_LABEL
from tasks.profile import Profile
from tasks.rights import Right, rights_of

Rule = dict[str, list[str]]
GROUP = ROLE.group


class Account(NamedTuple):
    """Who gets the rights."""

    namespace: str
    name: str

    @property
    def manifest(self) -> Object:
        """The ServiceAccount."""
        meta = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}

    @property
    def subject(self) -> Object:
        """As a binding names it."""
        return {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}

    @property
    def home(self) -> Object:
        """Its namespace."""
        return {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": self.namespace}}


def roles(
    stage: str, profile: Profile, accounts: Sequence[Account], *, own_namespaces: bool = False
) -> list[Object]:
    """Roles of a stage and their bindings to these accounts.

    Namespaces that a run makes itself cannot hold a Role beforehand: what is needed in them is then granted
    everywhere.
    """
    made = {profile.namespace, profile.golden_namespace} if own_namespaces else set()
    by_place: dict[str, list[Right]] = {}
    for right in rights_of([stage], profile, own_namespaces=own_namespaces):
        place = "" if right.namespace in made else right.namespace
        by_place.setdefault(place, []).append(right)
    return [
        manifest
        for place, rights in sorted(by_place.items())
        for manifest in _granted(f"virtscale-{stage}", place, rights, accounts)
    ]


def _granted(name: str, place: str, rights: list[Right], accounts: Sequence[Account]) -> list[Object]:
    prefix = "" if place else "Cluster"
    meta = {"name": name} | ({"namespace": place} if place else {})
    reference = {"apiGroup": GROUP, "kind": f"{prefix}Role", "name": name}
    role = {"apiVersion": ROLE.api_version, "kind": f"{prefix}Role", "metadata": meta, "rules": rules(rights)}
    binding = {
        "apiVersion": ROLE_BINDING.api_version,
        "kind": f"{prefix}RoleBinding",
        "metadata": meta,
        "roleRef": reference,
        "subjects": [account.subject for account in accounts],
    }
    return [role, binding]


def rules(rights: Iterable[Right]) -> list[Rule]:
    """Rules that allow just these rights; resources of a group with the same verbs share one."""
    verbs: dict[tuple[str, str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.kind.group, right.name, right.resource), set()).add(right.verb)
    resources: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, name, resource), may in sorted(verbs.items()):
        resources.setdefault((group, name, tuple(sorted(may))), []).append(resource)
    return [_rule(*key, found) for key, found in sorted(resources.items())]


def _rule(group: str, name: str, verbs: tuple[str, ...], resources: list[str]) -> Rule:
    named = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs), **named}


def lent_namespaces(profile: Profile) -> list[Object]:
    """The namespaces of a profile, lent to whoever runs it."""
    return [
        {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": _lent(name)}
        for name in dict.fromkeys((profile.namespace, profile.golden_namespace))
    ]


def _lent(name: str) -> dict[str, Any]:
    return {"name": name, "labels": {LENT_LABEL: "true"}}
