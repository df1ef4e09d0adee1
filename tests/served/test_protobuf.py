"""The protobuf that kubectl sends: understood, or refused with a Status."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.served.protobuf import MAGIC, decoded
from infra.served.status import Refused


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def part(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def sent(kind: bytes, raw: bytes) -> bytes:
    return MAGIC + part(1, part(1, b"v1") + part(2, kind)) + part(2, raw) + part(3, b"") + part(4, b"")


def test_a_config_map_is_understood() -> None:
    meta = (
        part(1, b"c")
        + part(2, b"")
        + part(3, b"lab")
        + part(5, b"")
        + part(11, part(1, b"a") + part(2, b"b"))
    )
    raw = (
        part(1, meta) + part(2, part(1, b"k") + part(2, b"v")) + part(2, part(1, b"l") + part(2, b"x" * 300))
    )
    assert decoded(sent(b"ConfigMap", raw + part(3, part(1, b"z") + part(2, b"\xff")))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "lab", "labels": {"a": "b"}},
        "data": {"k": "v", "l": "x" * 300},
        "binaryData": {"z": "/w=="},
    }


def test_delete_options_are_understood() -> None:
    raw = varint(1 << 3) + varint(300) + part(2, part(1, b"uid")) + part(4, b"Orphan") + part(5, b"All")
    assert decoded(sent(b"DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 300,
        "preconditions": {"uid": "uid"},
        "propagationPolicy": "Orphan",
        "dryRun": ["All"],
    }


def test_other_kinds_are_asked_for_as_json() -> None:
    with pytest.raises(Refused, match="Pod is understood as application/json only") as refused:
        decoded(sent(b"Pod", b""))
    assert refused.value.code == 415


def kind_of(body: bytes) -> str:
    """The kind that is found in a body, or the reason why none is."""
    try:
        return str(decoded(body)["kind"])
    except Refused as refused:
        return refused.reason


@given(st.binary(max_size=60), st.integers(0, 40))
def test_damaged_bytes_are_refused(tail: bytes, cut: int) -> None:
    whole = sent(b"ConfigMap", part(1, part(1, b"name")) + part(2, part(1, b"k") + part(2, b"v")))
    assert kind_of(MAGIC + tail) in ("BadRequest", "UnsupportedMediaType")
    assert kind_of(whole[:cut] + tail) in ("BadRequest", "UnsupportedMediaType", "ConfigMap")
