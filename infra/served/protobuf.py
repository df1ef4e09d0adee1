"""Kubernetes' protobuf, as far as kubectl sends it: small objects that it makes itself. Pure.

Field numbers are those of the API's own `generated.proto` files (core/v1, authorization/v1, meta/v1).
Everything else goes as JSON, which every client speaks.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from infra.cluster.port import Object
from infra.served.status import Refused, bad_request

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"


class Field(NamedTuple):
    """One field: its JSON name, and text, bytes, number, map, bytes map or the fields of a message."""

    name: str
    shape: "str | Mapping[int, Field]" = "text"
    repeated: bool = False


Message = Mapping[int, Field]
_META: Message = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    11: Field("labels", "map"),
    12: Field("annotations", "map"),
    14: Field("finalizers", repeated=True),
}
_METADATA = Field("metadata", _META)
_RESOURCE: Message = dict(
    enumerate(map(Field, ("namespace", "verb", "group", "version", "resource", "subresource", "name")), 1)
)
_REVIEW: Message = {
    1: Field("resourceAttributes", _RESOURCE),
    2: Field("nonResourceAttributes", {1: Field("path"), 2: Field("verb")}),
}
_KINDS: dict[str, Message] = {
    "Namespace": {1: _METADATA},
    "ConfigMap": {1: _METADATA, 2: Field("data", "map"), 3: Field("binaryData", "bytes map")},
    "Secret": {1: _METADATA, 2: Field("data", "bytes map"), 3: Field("type"), 4: Field("stringData", "map")},
    "SelfSubjectAccessReview": {1: _METADATA, 2: Field("spec", _REVIEW)},
    "SelfSubjectReview": {1: _METADATA},
    "DeleteOptions": {
        1: Field("gracePeriodSeconds", "number"),
        2: Field("preconditions", {1: Field("uid")}),
        4: Field("propagationPolicy"),
        5: Field("dryRun", repeated=True),
    },
}


def decoded(body: bytes) -> Object:
    """The object in a protobuf body.

    Raises:
        Refused: it is damaged, or of a kind that is understood as JSON only.
    """
    try:
        unknown = dict(_fields(body.removeprefix(MAGIC)))
        types = {number: text.decode() for number, text in _fields(unknown[1])}
        kind = types[2]
        if kind not in _KINDS:
            raise Refused(415, "UnsupportedMediaType", f"{kind} is understood as application/json only")
        found = _message(unknown.get(2, b""), _KINDS[kind])
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise bad_request(f"the request's body is no protobuf: {error}") from error
    return {"apiVersion": types.get(1, ""), "kind": kind, **found}


def _message(body: bytes, fields: Message) -> Object:
    found: Object = {}
    for number, value in _fields(body):
        field = fields.get(number)
        if field is None:
            continue
        read = _value(value, field.shape)
        if field.repeated:
            found.setdefault(field.name, []).append(read)
        elif field.shape in ("map", "bytes map"):
            found.setdefault(field.name, {}).update(read)
        else:
            found[field.name] = read
    # empty texts are how Go writes a field that is not set
    return {name: value for name, value in found.items() if value not in ("", {})} | _meta_of(fields, found)


def _meta_of(fields: Message, found: Object) -> Object:
    return {"metadata": found.get("metadata", {})} if fields.get(1) is _METADATA else {}


def _value(value: Any, shape: "str | Message") -> Any:
    if isinstance(shape, str):
        match shape:
            case "number":
                return int(value)
            case "text":
                return value.decode()
            case _:
                return _entry(value, is_bytes=shape == "bytes map")
    return _message(value, shape)


def _entry(body: bytes, *, is_bytes: bool) -> dict[str, str]:
    pair = dict(_fields(body))
    value: bytes = pair.get(2, b"")
    text = base64.b64encode(value).decode() if is_bytes else value.decode()
    return {pair.get(1, b"").decode(): text}


def _fields(body: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: whole numbers and byte strings."""
    position = 0
    while position < len(body):
        key, position = _varint(body, position)
        match key & 7:
            case 0:
                value, position = _varint(body, position)
                yield key >> 3, value
            case 2:
                length, position = _varint(body, position)
                if position + length > len(body):
                    raise ValueError("it ends in the middle of a field")
                yield key >> 3, body[position : position + length]
                position += length
            case other:
                raise ValueError(f"wire type {other}")


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = body[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
