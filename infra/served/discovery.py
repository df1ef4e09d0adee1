"""Discovery: which groups, versions and resources there are, and which parameters a patch takes. Pure."""

from infra.cluster.kinds import KINDS, POD, VM, Kind
from infra.cluster.port import Object
from infra.served.paths import SUBRESOURCES_GROUP, SUBRESOURCES_VERSION

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
REVIEWS = frozenset(("SelfSubjectAccessReview", "SelfSubjectReview"))
_SHORT = {
    "VirtualMachine": ["vm", "vms"],
    "VirtualMachineInstance": ["vmi", "vmis"],
    "KubeVirt": ["kv", "kvs"],
    "DataVolume": ["dv", "dvs"],
    "DataSource": ["das"],
    "VolumeSnapshot": ["vs"],
    "VolumeSnapshotContent": ["vsc", "vscs"],
    "VolumeSnapshotClass": ["vsclass", "vsclasses"],
    "StorageClass": ["sc"],
    "Namespace": ["ns"],
    "Node": ["no"],
    "Pod": ["po"],
    "PersistentVolumeClaim": ["pvc"],
    "PersistentVolume": ["pv"],
    "Event": ["ev"],
    "ConfigMap": ["cm"],
    "PodDisruptionBudget": ["pdb"],
    "MachineConfigPool": ["mcp"],
    "HyperConverged": ["hco", "hcos"],
    "Deployment": ["deploy"],
    "NodeNetworkConfigurationPolicy": ["nncp"],
    "NodeNetworkConfigurationEnactment": ["nnce"],
}
_ALL = frozenset(("VirtualMachine", "VirtualMachineInstance", "DataVolume", "Pod", "Deployment"))
_VIRT_API = ("start", "stop")
JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


def is_custom(kind: Kind) -> bool:
    """Whether a CustomResourceDefinition serves the kind: no strategic merge patch then."""
    return (
        "." in kind.group and not kind.group.endswith(".k8s.io")
    ) or kind.group == "snapshot.storage.k8s.io"


def document(path: str, version: str) -> Object | None:
    """The discovery document at a path; None where there is none."""
    parts = path.strip("/").split("/")
    if parts == ["version"]:
        return _version(version)
    if parts == ["api"]:
        return {
            "kind": "APIVersions",
            "apiVersion": "v1",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }
    if parts == ["apis"]:
        groups = [_group(name) for name in _groups()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts[0] == "openapi" and parts[1:2] == ["v3"]:
        return _open_api("/".join(parts[2:]))
    if parts == ["api", "v1"]:
        return _resources("v1")
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in _groups():
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
    if parts[0] == "apis" and len(parts) == 3:
        return _resources("/".join(parts[1:]))
    return None


def _version(version: str) -> Object:
    major, minor = version.removeprefix("v").split(".")[:2]
    return {"major": major, "minor": minor, "gitVersion": version, "platform": "virtscale/served"}


def _groups() -> dict[str, list[str]]:
    """Versions of each named group."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        versions = found.setdefault(kind.group, []) if kind.group else []
        if kind.group and kind.version not in versions:
            versions.append(kind.version)
    return {**found, SUBRESOURCES_GROUP: [SUBRESOURCES_VERSION]}


def _group(name: str) -> Object:
    versions = [{"groupVersion": f"{name}/{each}", "version": each} for each in sorted(_groups()[name])]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(api_version: str) -> Object | None:
    if api_version == f"{SUBRESOURCES_GROUP}/{SUBRESOURCES_VERSION}":
        found = [_subresource(VM, verb, ["update"], VM.kind) for verb in _VIRT_API]
    else:
        found = [each for kind in KINDS if kind.api_version == api_version for each in _of_kind(kind)]
    if not found:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": found}


def _of_kind(kind: Kind) -> list[Object]:
    resource: Object = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": ["create"] if kind.kind in REVIEWS else VERBS,
    }
    if kind.kind in _SHORT:
        resource["shortNames"] = _SHORT[kind.kind]
    if kind.kind in _ALL:
        resource["categories"] = ["all"]
    found = [resource]
    if kind.status_subresource:
        found.append(_subresource(kind, "status", ["get", "patch", "update"], kind.kind))
    if kind is POD:
        found.append(_subresource(kind, "binding", ["create"], "Binding"))
    return found


def _subresource(kind: Kind, verb: str, verbs: list[str], answers: str) -> Object:
    name = {"name": f"{kind.plural}/{verb}", "singularName": "", "namespaced": kind.namespaced}
    return {**name, "kind": answers, "verbs": verbs}


def _open_api(where: str) -> Object | None:
    """OpenAPI v3 without schemas: kubectl looks here whether the server validates fields."""
    if not where:
        paths = sorted({kind.prefix.strip("/") for kind in KINDS})
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}
    kinds = [kind for kind in KINDS if kind.prefix.strip("/") == where]
    if not kinds:
        return None
    info = {"title": "virtscale served cluster", "version": "1"}
    schemas = {f"{kind.group or 'core'}.{kind.version}.{kind}": _schema(kind) for kind in kinds}
    return {
        "openapi": "3.0.0",
        "info": info,
        "paths": {_item(kind): _operations(kind) for kind in kinds},
        "components": {"schemas": schemas},
    }


def _schema(kind: Kind) -> Object:
    return {
        "type": "object",
        "description": "No schema is kept here: any field is accepted.",
        "x-kubernetes-group-version-kind": [_named(kind)],
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {name: {"type": "object"} for name in ("metadata", "spec", "status")},
    }


def _named(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _item(kind: Kind) -> str:
    within = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{kind.prefix}{within}/{kind.plural}/{{name}}"


def _operations(kind: Kind) -> Object:
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    # not the strategic one: kubectl would compute it from a schema with merge keys, which is not kept here
    types = [JSON, MERGE, APPLY]
    patch = {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _named(kind),
        "parameters": parameters,
        "requestBody": {"content": {each: {} for each in types}},
        "responses": {"200": {"description": "OK"}},
    }
    return {"patch": patch}
