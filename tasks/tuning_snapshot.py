"""What tuning is about to change, as it was: on the store before the first field is set.

One JSON object per run, `_tuning/<run>.json`. A field that was absent is remembered by how much of its
path existed, so that a revert leaves no empty tables behind.
"""

import json
from typing import Any, TypedDict

from infra.cluster.kinds import kind_of
from infra.cluster.port import Object, Ref
from infra.results.port import ObjectStore
from tasks.knobs import FieldPath
from tasks.tuning_look import value_at


class FieldBefore(TypedDict):
    """One field: its path, its value before (None: absent), how many parts existed, what was set."""

    path: list[str]
    before: Any
    existed: int
    set: Any


class ObjectBefore(TypedDict):
    """One object, whether it existed, and the fields that are set in it, by knob."""

    api_version: str
    kind: str
    namespace: str
    name: str
    existed: bool
    knobs: dict[str, list[FieldBefore]]


class Snapshot(TypedDict):
    """Everything that a run's tuning touches; `found` is what each knob's end points said before."""

    run_id: str
    reverted: bool
    objects: list[ObjectBefore]
    values: dict[str, Any]
    found: dict[str, str | None]


def key_of(run_id: str) -> str:
    """Where a run's snapshot is."""
    return f"_tuning/{run_id}.json"


def read_snapshot(store: ObjectStore, run_id: str) -> Snapshot | None:
    """The snapshot of a run; None when its tuning never set anything."""
    body = store.get(key_of(run_id))
    found: Snapshot | None = None if body is None else json.loads(body)
    return found


def write_snapshot(store: ObjectStore, snapshot: Snapshot) -> None:
    """Keep a snapshot, whole."""
    store.put(key_of(snapshot["run_id"]), json.dumps(snapshot, indent=1, sort_keys=True).encode())


def is_in_force(snapshot: Snapshot | None) -> bool:
    """Whether something that tuning set may still be set."""
    return snapshot is not None and not snapshot["reverted"]


def new_snapshot(run_id: str) -> Snapshot:
    """An empty one."""
    return {"run_id": run_id, "reverted": False, "objects": [], "values": {}, "found": {}}


def ref_of_before(before: ObjectBefore) -> Ref:
    """The object that was remembered."""
    kind = kind_of(before["api_version"], before["kind"])
    return Ref(kind, before["namespace"], before["name"])


def remembered(snapshot: Snapshot, ref: Ref, obj: Object | None) -> ObjectBefore:
    """The entry of an object; a new one when the run did not touch it yet."""
    for entry in snapshot["objects"]:
        if ref_of_before(entry) == ref:
            return entry
    entry = {
        "api_version": ref.kind.api_version,
        "kind": ref.kind.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "existed": obj is not None,
        "knobs": {},
    }
    snapshot["objects"].append(entry)
    return entry


def field_before(obj: Object | None, path: FieldPath, value: Any) -> FieldBefore:
    """How a field stands before it is set to `value`."""
    existed = 0
    while existed < len(path) and value_at(obj, path[: existed + 1]) is not None:
        existed += 1
    return {"path": list(path), "before": value_at(obj, path), "existed": existed, "set": value}
