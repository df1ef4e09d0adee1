"""Patches other than a merge patch, turned into new objects, and from there into a merge patch. Pure.

Strategic merge is the subset that kubectl uses: maps merge, lists merge by the key that Kubernetes gives
them, `$patch: delete|replace`, `$deleteFromPrimitiveList`; order directives are not followed.
"""

from collections.abc import Sequence
from typing import Any

from infra.errors import Invalid

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "taints": "key",
}
_SETS = frozenset(("finalizers",))
_DIRECTIVES = ("$setElementOrder/", "$retainKeys")
_DELETE_FROM = "$deleteFromPrimitiveList/"


def difference(old: Any, new: Any) -> Any:
    """The merge patch that makes `new` of `old`; empty when they are equal."""
    change = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = difference(before, value)
            if inner:
                change[key] = inner
        elif key not in old or value != before or type(value) is not type(before):
            change[key] = value
    return change


def strategic(old: Any, patch: dict[str, Any]) -> Any:
    """Strategic merge of `patch` into a map."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if key == "$patch" or key.startswith(_DIRECTIVES):
            continue
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            new[name] = [each for each in new.get(name) or () if each not in value]
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            new.pop(key, None)
        else:
            new[key] = _merged(key, new.get(key), value)
    return new


def _merged(key: str, old: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return strategic(old, value)
    if isinstance(value, list) and key in _SETS:
        return [*(old or ()), *(each for each in value if each not in (old or ()))]
    if isinstance(value, list) and key in _MERGE_KEYS and all(isinstance(each, dict) for each in value):
        return _by_key(_MERGE_KEYS[key], old or [], value)
    return value


def _by_key(name: str, old: list[Any], patch: list[dict[str, Any]]) -> list[Any]:
    if any(each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if each.get("$patch") != "replace"]
    found = {each.get(name): each for each in old}
    for each in patch:
        if each.get("$patch") == "delete":
            found.pop(each.get(name), None)
        else:
            found[each.get(name)] = strategic(found.get(each.get(name)), each)
    return list(found.values())


def json_patch(obj: Any, operations: Any) -> Any:
    """RFC 6902: add, remove, replace, test, copy and move, on a copy.

    Raises:
        Invalid: an operation cannot be carried out.
    """
    try:
        for operation in operations:
            obj = _operated(obj, operation)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(f"the JSON patch cannot be applied: {type(error).__name__}: {error}") from error
    return obj


def _operated(obj: Any, operation: dict[str, Any]) -> Any:
    verb, path = operation["op"], _pointer(operation["path"])
    if verb == "test":
        if _found(obj, path) != operation["value"]:
            raise ValueError(f"testing path {operation['path']} failed")
        return obj
    if verb in ("copy", "move"):
        source = _pointer(operation["from"])
        value = _found(obj, source)
        return _set(_removed(obj, source) if verb == "move" else obj, path, value, insert=True)
    if verb == "remove":
        return _removed(obj, path)
    if verb == "replace":
        _found(obj, path)
    elif verb != "add":
        raise ValueError(f"unknown operation {verb!r}")
    return _set(obj, path, operation["value"], insert=verb == "add")


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _found(obj: Any, path: Sequence[str]) -> Any:
    for part in path:
        obj = obj[int(part)] if isinstance(obj, list) else obj[part]
    return obj


def _set(obj: Any, path: Sequence[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(obj, list):
        new = list(obj)
        place = len(new) if part == "-" else int(part)
        if rest:
            new[place] = _set(new[place], rest, value, insert=insert)
        elif insert:
            new.insert(place, value)
        else:
            new[place] = value
        return new
    return {**obj, part: _set(obj[part], rest, value, insert=insert) if rest else value}


def _removed(obj: Any, path: Sequence[str]) -> Any:
    part, rest = path[0], path[1:]
    new = obj.copy()
    place: Any = int(part) if isinstance(obj, list) else part
    if rest:
        new[place] = _removed(obj[place], rest)
    else:
        del new[place]
    return new
