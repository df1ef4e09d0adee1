"""Tables: what `kubectl get` prints, column by column. Pure."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from infra.cluster.kinds import (
    DATA_SOURCE,
    DATA_VOLUME,
    EVENT,
    KUBEVIRT,
    NAMESPACE,
    NODE,
    POD,
    PV,
    PVC,
    SNAPSHOT,
    STORAGE_CLASS,
    VM,
    VMI,
    Kind,
)
from infra.cluster.port import Object

Read = Callable[[Object], Any]


class Column(NamedTuple):
    """One column; a `wide` one is shown by `-o wide` only."""

    name: str
    read: Read
    wide: bool = False


def _field(path: str) -> Read:
    parts = path.split(".")

    def read(obj: Object) -> Any:
        value: Any = obj
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return "" if value is None else value

    return read


def _condition(name: str) -> Read:
    def read(obj: Object) -> str:
        found = _field("status.conditions")(obj) or ()
        return next((str(each["status"]) for each in found if each.get("type") == name), "")

    return read


def _age(obj: Object) -> str:
    made = obj["metadata"].get("creationTimestamp")
    if not made:
        return "<unknown>"
    return lasting((datetime.now(UTC) - datetime.fromisoformat(made)).total_seconds())


def lasting(seconds: float) -> str:
    """How kubectl writes an age: 45s, 3m5s, 12m, 3h, 2d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _address(obj: Object) -> str:
    found = _field("status.interfaces")(obj) or ()
    return str(found[0].get("ipAddress", "")) if found else ""


def _node_status(obj: Object) -> str:
    ready = "Ready" if _condition("Ready")(obj) == "True" else "NotReady"
    return f"{ready},SchedulingDisabled" if _field("spec.unschedulable")(obj) else ready


def _roles(obj: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    return ",".join(roles) or "<none>"


def _pod_status(obj: Object) -> str:
    return (
        "Terminating"
        if "deletionTimestamp" in obj["metadata"]
        else str(_field("status.phase")(obj) or "Pending")
    )


def _namespace_status(obj: Object) -> str:
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else "Active"


def _pod_ready(obj: Object) -> str:
    count = len(_field("spec.containers")(obj) or ())
    return f"{count if _condition('Ready')(obj) == 'True' else 0}/{count}"


def _modes(obj: Object) -> str:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short.get(mode, mode) for mode in _field("spec.accessModes")(obj) or ())


def _claim(obj: Object) -> str:
    claim = _field("spec.claimRef")(obj) or {}
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _about(obj: Object) -> str:
    about = obj.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_NAME, _AGE = Column("Name", _field("metadata.name")), Column("Age", _age)
_PLAIN: tuple[Column, ...] = (_NAME, _AGE)
_COLUMNS: dict[Kind, tuple[Column, ...]] = {
    VM: (
        _NAME,
        _AGE,
        Column("Status", _field("status.printableStatus")),
        Column("Ready", lambda obj: _condition("Ready")(obj) or "False"),
    ),
    VMI: (
        _NAME,
        _AGE,
        Column("Phase", _field("status.phase")),
        Column("IP", _address),
        Column("NodeName", _field("status.nodeName")),
        Column("Ready", lambda obj: _condition("Ready")(obj) or "False"),
        Column("Live-Migratable", _condition("LiveMigratable"), wide=True),
    ),
    KUBEVIRT: (_NAME, _AGE, Column("Phase", _field("status.phase"))),
    DATA_VOLUME: (
        _NAME,
        Column("Phase", _field("status.phase")),
        Column("Progress", _field("status.progress")),
        Column("Restarts", _field("status.restartCount")),
        _AGE,
    ),
    DATA_SOURCE: (_NAME, Column("Ready", _condition("Ready")), _AGE),
    SNAPSHOT: (
        _NAME,
        Column("ReadyToUse", lambda obj: str(_field("status.readyToUse")(obj)).lower()),
        Column("SourcePVC", _field("spec.source.persistentVolumeClaimName")),
        Column("RestoreSize", _field("status.restoreSize")),
        Column("SnapshotClass", _field("spec.volumeSnapshotClassName")),
        Column("SnapshotContent", _field("status.boundVolumeSnapshotContentName")),
        _AGE,
    ),
    STORAGE_CLASS: (
        _NAME,
        Column("Provisioner", _field("provisioner")),
        Column("ReclaimPolicy", _field("reclaimPolicy")),
        Column("VolumeBindingMode", _field("volumeBindingMode")),
        _AGE,
    ),
    NAMESPACE: (_NAME, Column("Status", _namespace_status), _AGE),
    NODE: (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _roles),
        _AGE,
        Column("Version", _field("status.nodeInfo.kubeletVersion")),
    ),
    POD: (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", lambda _: 0),
        _AGE,
        Column("IP", _field("status.podIP"), wide=True),
        Column("Node", lambda obj: _field("spec.nodeName")(obj) or "<none>", wide=True),
    ),
    PVC: (
        _NAME,
        Column("Status", _field("status.phase")),
        Column("Volume", _field("spec.volumeName")),
        Column("Capacity", _field("status.capacity.storage")),
        Column("Access Modes", _modes),
        Column("StorageClass", _field("spec.storageClassName")),
        _AGE,
        Column("VolumeMode", _field("spec.volumeMode"), wide=True),
    ),
    PV: (
        _NAME,
        Column("Capacity", _field("spec.capacity.storage")),
        Column("Access Modes", _modes),
        Column("Reclaim Policy", _field("spec.persistentVolumeReclaimPolicy")),
        Column("Status", _field("status.phase")),
        Column("Claim", _claim),
        Column("StorageClass", _field("spec.storageClassName")),
        _AGE,
    ),
    EVENT: (
        Column("Last Seen", _age),
        Column("Type", _field("type")),
        Column("Reason", _field("reason")),
        Column("Object", _about),
        Column("Message", _field("message")),
    ),
}


def table(kind: Kind, items: Sequence[Object], version: str, include: str = "Metadata") -> Object:
    """A meta.k8s.io/v1 Table; `include` is what each row carries: None, Metadata or Object."""
    columns = _COLUMNS.get(kind, _PLAIN)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(columns, obj, include) for obj in items],
    }


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": "string",
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": int(column.wide),
    }


def _row(columns: Sequence[Column], obj: Object, include: str) -> Object:
    row: Object = {"cells": [column.read(obj) for column in columns]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        row["object"] = {**partial, "metadata": obj["metadata"]}
    return row
