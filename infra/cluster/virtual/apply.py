"""Server-side apply for maps and atomic lists: who manages which field, and what conflicts.

Lists are treated as atomic (the real API merges some lists by key): an applied list replaces
the one there and is owned as a whole.
"""

from typing import Any, NamedTuple

from infra.cluster.port import Object, ref_of
from infra.cluster.virtual.store import Store, merge
from infra.errors import Conflict, NotFound

Path = tuple[str, ...]


def leaves(value: Any, path: Path = ()) -> dict[Path, Any]:
    """Every leaf (scalar, list or empty map) of nested maps by its path."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    found: dict[Path, Any] = {}
    for key, inner in value.items():
        found.update(leaves(inner, (*path, key)))
    return found


def _nested(paths: list[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for part in path:
            node = node.setdefault(f"f:{part}", {})
    return tree


def _paths(tree: dict[str, Any], path: Path = ()) -> set[Path]:
    if not tree:
        return {path}
    return {found for key, inner in tree.items() for found in _paths(inner, (*path, key[2:]))}


def _managed(obj: Object) -> dict[str, set[Path]]:
    entries = obj["metadata"].get("managedFields") or []
    return {entry["manager"]: _paths(entry["fieldsV1"]) for entry in entries}


def _applied(obj: Object) -> dict[Path, Any]:
    ignored = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
    return {path: value for path, value in leaves(obj).items() if path not in ignored}


def _value(obj: Any, path: Path) -> Any:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _without(obj: Object, path: Path) -> Object:
    change: Any = None
    for part in reversed(path):
        change = {part: change}
    without: Object = merge(obj, change)
    return without


def _check_conflicts(old: Object, wanted: dict[Path, Any], others: dict[str, set[Path]]) -> None:
    for manager, paths in others.items():
        clashes = [p for p in sorted(paths & wanted.keys()) if _value(old, p) != wanted[p]]
        if clashes:
            fields = ", ".join("." + ".".join(path) for path in clashes)
            raise Conflict(
                f'Apply failed with {len(clashes)} conflict(s): conflicts with "{manager}": {fields}'
            )


def _entries(managed: dict[str, set[Path]]) -> list[dict[str, Any]]:
    return [
        {
            "manager": manager,
            "operation": "Apply",
            "fieldsType": "FieldsV1",
            "fieldsV1": _nested(sorted(paths)),
        }
        for manager, paths in managed.items()
        if paths
    ]


class Request(NamedTuple):
    """One apply: who, when (for a creation), and how."""

    manager: str
    stamp: str
    force: bool
    dry_run: bool


def apply(store: Store, obj: Object, request: Request) -> Object:
    """Create or change an object so that it says what `obj` says.

    A field this manager applied before and now leaves out is removed, unless another owns it.

    Raises:
        Conflict: another manager owns a field with another value and the request does not force it.
    """
    ref, wanted = ref_of(obj), _applied(obj)
    manager = request.manager
    try:
        old = store.get(ref)
    except NotFound:
        first = merge(obj, {"metadata": {"managedFields": _entries({manager: set(wanted)})}})
        return store.create(first, request.stamp, dry_run=request.dry_run)
    managed = _managed(old)
    mine = managed.pop(manager, set())
    if not request.force:
        _check_conflicts(old, wanted, managed)
    new = merge(old, obj)
    for path in sorted(mine - wanted.keys()):
        # a map that was applied empty stays when something is now applied within it
        grown = any(each[: len(path)] == path for each in wanted)
        if not grown and not any(path in paths for paths in managed.values()):
            new = _without(new, path)
    if request.force:
        managed = {name: {p for p in paths if p not in wanted} for name, paths in managed.items()}
    managed[manager] = set(wanted)
    new = merge(new, {"metadata": {"managedFields": _entries(managed)}})
    return store.replace(ref, new, dry_run=request.dry_run)
