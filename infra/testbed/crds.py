"""The CRDs of a testbed: real schemas wrapped into CustomResourceDefinitions, or permissive ones of our own.

Real schemas are read in place, never copied: from the folder that VIRTSCALE_CRD_SCHEMAS names, else from
`../shared/crds` beside the checkout. A file `<group>_<singular>_<version>.json` is a bare schema as a CRD
catalogue publishes it; scope, names, versions and subresources are in no schema and stand in `KINDS` below
(KubeVirt v1.6.2, CDI v1.63.1). Files in `whole/` are complete CRDs and are taken as they are.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra import settings
from infra.cluster.kinds import KINDS as USED
from infra.errors import ClusterError
from infra.testbed import binaries

SHARED_SCHEMAS = Path(__file__).parents[3] / "shared" / "crds"
PERMISSIVE_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True)
class Kind:
    """What a CRD says beside its schema. The first version is the stored one, later ones are deprecated."""

    group: str
    name: str
    versions: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    has_status: bool = False
    is_namespaced: bool = True
    plural: str = ""

    @property
    def plural_name(self) -> str:
        """The name in API paths."""
        return self.plural or f"{self.name.lower()}s"


KUBEVIRT_VERSIONS = ("v1", "v1alpha3")
KINDS = (
    Kind(
        "kubevirt.io",
        "VirtualMachine",
        KUBEVIRT_VERSIONS,
        ("vm", "vms"),
        (
            ("Status", ".status.printableStatus"),
            ("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        ),
        has_status=True,
    ),
    # KubeVirt gives VirtualMachineInstance no status subresource: each status write raises its generation.
    Kind(
        "kubevirt.io",
        "VirtualMachineInstance",
        KUBEVIRT_VERSIONS,
        ("vmi", "vmis"),
        (
            ("Phase", ".status.phase"),
            ("IP", ".status.interfaces[0].ipAddress"),
            ("NodeName", ".status.nodeName"),
        ),
    ),
    Kind(
        "kubevirt.io",
        "VirtualMachineInstanceMigration",
        KUBEVIRT_VERSIONS,
        ("vmim", "vmims"),
        (("Phase", ".status.phase"), ("VMI", ".spec.vmiName")),
        has_status=True,
    ),
    Kind(
        "cdi.kubevirt.io",
        "DataVolume",
        ("v1beta1",),
        ("dv", "dvs"),
        (("Phase", ".status.phase"), ("Progress", ".status.progress")),
        has_status=True,
    ),
    Kind("cdi.kubevirt.io", "DataSource", ("v1beta1",), ("das",)),
    Kind("cdi.kubevirt.io", "StorageProfile", ("v1beta1",), is_namespaced=False),
)
# Complete CRDs that `whole/` would bring, and without which a stage could not be tried at all.
WHOLE_KINDS = (
    Kind("kubevirt.io", "KubeVirt", ("v1",), ("kv", "kvs"), has_status=True),
    Kind("cdi.kubevirt.io", "CDI", ("v1beta1",), ("cdi", "cdis"), is_namespaced=False),
    Kind(
        "k8s.cni.cncf.io",
        "NetworkAttachmentDefinition",
        ("v1",),
        ("net-attach-def",),
        plural="network-attachment-definitions",
    ),
)
# What virtual controllers make or a VirtualMachine names, and no published schema is at hand for.
OWN_KINDS = (
    Kind("cdi.kubevirt.io", "VolumeCloneSource", ("v1beta1",)),
    Kind("instancetype.kubevirt.io", "VirtualMachineInstancetype", ("v1beta1",), ("vminstancetype",)),
    Kind(
        "instancetype.kubevirt.io",
        "VirtualMachineClusterInstancetype",
        ("v1beta1",),
        ("vmclusterinstancetype",),
        is_namespaced=False,
    ),
    Kind("instancetype.kubevirt.io", "VirtualMachinePreference", ("v1beta1",), ("vmpref",)),
    Kind(
        "instancetype.kubevirt.io",
        "VirtualMachineClusterPreference",
        ("v1beta1",),
        ("vmcp",),
        is_namespaced=False,
    ),
)
SNAPSHOT_KINDS = (
    Kind(
        "snapshot.storage.k8s.io",
        "VolumeSnapshotClass",
        ("v1",),
        is_namespaced=False,
        plural="volumesnapshotclasses",
    ),
    Kind("snapshot.storage.k8s.io", "VolumeSnapshotContent", ("v1",), has_status=True, is_namespaced=False),
    Kind("snapshot.storage.k8s.io", "VolumeSnapshot", ("v1",), ("vs",), has_status=True),
)


@dataclass(frozen=True)
class Definitions:
    """The CRDs to apply, and one line for each thing that is not the real one."""

    crds: list[dict[str, Any]]
    notices: list[str]


def load() -> Definitions:
    """All CRDs that the stages need, as real as this machine has them.

    Raises:
        ClusterError: VIRTSCALE_CRD_SCHEMAS names no folder, or a schema file is not JSON.
    """
    schemas = schema_folder()
    notices = []
    if schemas is None:
        notices.append("no real CRD schemas here (set VIRTSCALE_CRD_SCHEMAS): permissive CRDs, no validation")
        crds = [wrap(kind, PERMISSIVE_SCHEMA) for kind in (*KINDS, *WHOLE_KINDS)]
    else:
        crds = [wrap(kind, _schema(schemas, kind)) for kind in KINDS]
        crds += [stored_as_used(_read_json(file)) for file in sorted((schemas / "whole").glob("*.json"))]
    crds += [wrap(kind, PERMISSIVE_SCHEMA) for kind in OWN_KINDS]
    snapshots = [_read_yaml(file) for file in binaries.snapshot_crd_files()]
    if not snapshots:
        notices.append("the snapshotter's Go module cannot be fetched: permissive VolumeSnapshot CRDs")
        snapshots = [wrap(kind, PERMISSIVE_SCHEMA) for kind in SNAPSHOT_KINDS]
    return Definitions(crds + snapshots, notices)


def schema_folder() -> Path | None:
    """The folder of real schemas: the one that the environment names, else the shared one, else None."""
    named = settings.crd_schemas()
    if named is not None and not named.is_dir():
        raise ClusterError(f"VIRTSCALE_CRD_SCHEMAS={named}: no such folder")
    return named or (SHARED_SCHEMAS if SHARED_SCHEMAS.is_dir() else None)


def wrap(kind: Kind, schema: dict[str, Any]) -> dict[str, Any]:
    """The CustomResourceDefinition of `kind` with `schema` in each of its versions."""
    names: dict[str, Any] = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural_name,
        "singular": kind.name.lower(),
        "shortNames": list(kind.short_names),
    }
    if kind.is_namespaced:
        names["categories"] = ["all"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural_name}.{kind.group}", "annotations": _approval(kind)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": names,
            "conversion": {"strategy": "None"},
            "versions": [_version(kind, name, schema) for name in kind.versions],
        },
    }


def stored_as_used(crd: dict[str, Any]) -> dict[str, Any]:
    """`crd` with the version that virtscale uses as the stored one, and then no other.

    Another stored version needs its operator's conversion webhook, which is not here: without it an API
    server drops every field that the other version lacks (HyperConverged v1 has no tuningPolicy).
    """
    spec, named = crd["spec"], (crd["spec"]["group"], crd["spec"]["names"]["plural"])
    used = next((kind.version for kind in USED if (kind.group, kind.plural) == named), "")
    versions = {version["name"]: version for version in spec["versions"]}
    if used not in versions or versions[used]["storage"]:
        return crd
    only = [{**each, "storage": name == used, "served": name == used} for name, each in versions.items()]
    return {**crd, "spec": {**spec, "versions": only}}


def structural(node: Any) -> Any:
    """`node` as a structural schema: objects opened again, descriptions dropped.

    A catalogue closes each object with `additionalProperties: false`, which a CRD may not have beside
    `properties`; and with descriptions the VirtualMachine CRD is three times as large.
    """
    if isinstance(node, list):
        return [structural(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _structural_value(key, value) for key, value in node.items() if not _is_dropped(key, value)}


def _structural_value(key: str, value: Any) -> Any:
    # The keys under `properties` are field names, among them real fields called "description".
    if key == "properties":
        return {name: structural(schema) for name, schema in value.items()}
    return structural(value)


def _is_dropped(key: str, value: Any) -> bool:
    return (key == "description" and isinstance(value, str)) or (
        key == "additionalProperties" and value is False
    )


def _version(kind: Kind, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    columns = [{"name": title, "type": "string", "jsonPath": path} for title, path in kind.columns]
    columns.append({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
    version: dict[str, Any] = {
        "name": name,
        "served": True,
        "storage": name == kind.versions[0],
        "deprecated": name != kind.versions[0],
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }
    if kind.has_status:
        version["subresources"] = {"status": {}}
    return version


def _approval(kind: Kind) -> dict[str, str]:
    """Groups under k8s.io are protected: a CRD there must say that nobody approved it."""
    if not kind.group.endswith(".k8s.io"):
        return {}
    return {"api-approved.kubernetes.io": "unapproved, permissive stand-in of a testbed"}


def _schema(folder: Path, kind: Kind) -> dict[str, Any]:
    file = folder / f"{kind.group}_{kind.name.lower()}_{kind.versions[0]}.json"
    schema: dict[str, Any] = structural(_read_json(file))
    return schema


def _read_json(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise ClusterError(f"{file}: missing; the folder of CRD schemas is not complete") from error
    except json.JSONDecodeError as error:
        raise ClusterError(f"{file}: not JSON: {error}") from error
    return document


def _read_yaml(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    return document


def names(crds: Sequence[dict[str, Any]]) -> list[str]:
    """The names of `crds`, sorted."""
    return sorted(crd["metadata"]["name"] for crd in crds)
