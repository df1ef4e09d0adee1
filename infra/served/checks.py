"""What of a request's object is refused before the store sees it. Pure.

A real API server has a schema for every kind; here only what the controllers rely on is looked at.
"""

import re
from collections.abc import Mapping
from typing import Any

from infra.cluster.kinds import DATA_VOLUME, NODE, POD, PVC, SNAPSHOT, VM, VMI, Kind
from infra.cluster.port import Object
from infra.errors import Invalid
from infra.served.paths import Target
from infra.served.status import bad_request

NAME = re.compile(r"[a-z0-9]([-a-z0-9.:]{0,251}[a-z0-9])?")
QUANTITY = re.compile(r"[+]?[0-9.]+([eE][-+]?[0-9]+|[KMGTPE]i?|[mk])?")
_WITHOUT_RULES = ("rbac.authorization.k8s.io",)
_REQUIRED: dict[Kind, tuple[str, ...]] = {
    VM: ("spec.template.spec.domain",),
    VMI: ("spec.domain",),
    PVC: ("spec.accessModes", "spec.resources.requests.storage"),
    POD: ("spec.containers",),
    SNAPSHOT: ("spec.source",),
    DATA_VOLUME: ("spec",),
}
_SPECLESS = frozenset(
    {
        "ConfigMap",
        "Secret",
        "Event",
        "Namespace",
        "Node",
        "StorageClass",
        "VolumeSnapshotClass",
        "Role",
        "RoleBinding",
        "ControllerRevision",
        "SelfSubjectReview",
        "VolumeCloneSource",
        "PersistentVolume",
        "KubeVirt",
        "CDI",
        "StorageProfile",
        "DataSource",
    }
)
_EMPTY_NODE = {"cpu": "0", "memory": "0", "pods": "0"}


def checked(target: Target, body: Any) -> Object:
    """A new or replaced object that fits its path, its own fields completed as admission does.

    Raises:
        Refused: it does not fit the path, or is no object at all.
        Invalid: a field is missing or wrong.
    """
    obj = fitting(target, body)
    meta = obj["metadata"]
    if "SelfSubject" not in target.kind.kind:
        name = meta.get("name", "")
        if not NAME.fullmatch(name) and target.kind.group not in _WITHOUT_RULES:
            raise _wrong(
                target.kind, name, f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 name'
            )
    _check_metadata(meta)
    _check_spec(target.kind, obj)
    return obj


def fitting(target: Target, body: Any) -> Object:
    """An object with the kind, namespace and name that its path says, or none of its own that differ."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise bad_request("the request's body is no object with metadata")
    kind = target.kind
    said = body.get("apiVersion", kind.api_version), body.get("kind", kind.kind)
    if said != (kind.api_version, kind.kind):
        raise bad_request(
            f"the object provided is {said[0]} {said[1]}, the path is of {kind.api_version} {kind}"
        )
    meta = dict(body.get("metadata") or {})
    for field, wanted in (("namespace", target.namespace), ("name", target.name)):
        if wanted and meta.setdefault(field, wanted) != wanted:
            raise bad_request(
                f"the {field} of the object ({meta[field]}) does not match the request's ({wanted})"
            )
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        raise bad_request("a namespace is needed: an empty one may not be set during creation")
    return {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


def _check_metadata(meta: Mapping[str, Any]) -> None:
    for field in ("labels", "annotations"):
        values = meta.get(field)
        if values is not None and not _is_text_map(values):
            raise bad_request(f"metadata.{field}: a map of text to text is needed")
    for field, kind in (("finalizers", str), ("ownerReferences", dict)):
        values = meta.get(field)
        if values is not None and not (isinstance(values, list) and all(isinstance(v, kind) for v in values)):
            raise bad_request(f"metadata.{field}: a list is needed")
    if any("uid" not in owner for owner in meta.get("ownerReferences") or ()):
        raise bad_request("metadata.ownerReferences: each needs apiVersion, kind, name and uid")


def _is_text_map(values: object) -> bool:
    return isinstance(values, dict) and all(isinstance(value, str) for value in values.values())


def _check_spec(kind: Kind, obj: Object) -> None:
    name = obj["metadata"].get("name", "")
    if kind.kind not in _SPECLESS and not isinstance(obj.get("spec"), dict):
        raise _wrong(kind, name, "spec: Required value")
    for path in _REQUIRED.get(kind, ()):
        if not _at(obj, path):
            raise _wrong(kind, name, f"{path}: Required value")
    size = _at(obj, "spec.resources.requests.storage") if kind is PVC else "1"
    if not QUANTITY.fullmatch(str(size)):
        raise _wrong(kind, name, f'spec.resources.requests.storage: Invalid value: "{size}": no quantity')


def completed(obj: Object, kind: Kind, storage_class: str) -> Object:
    """What admission and the registry fill in where it matters here."""
    if kind is PVC:
        return {**obj, "spec": {"storageClassName": storage_class, "volumeMode": "Filesystem", **obj["spec"]}}
    if kind is NODE:
        status = {"allocatable": _EMPTY_NODE, "capacity": _EMPTY_NODE, **(obj.get("status") or {})}
        return {"spec": {}, **obj, "status": status}
    if kind is POD:
        return {**obj, "status": {"phase": "Pending", **(obj.get("status") or {})}}
    return obj


def _at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _wrong(kind: Kind, name: str, what: str) -> Invalid:
    group = f".{kind.group}" if kind.group else ""
    return Invalid(f'{kind}{group} "{name}" is invalid: {what}')
