"""The saved state of a virtual cluster as it is stored: JSON in zstd, written in pieces."""

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

OBJECTS_A_PIECE = 500


def packed(state: dict[str, Any]) -> bytes:
    """A state, ready to be stored; its JSON (40 MB for 6,000 VMs) is never whole in memory."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for piece in _pieces(state):
            stream.write(piece)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _pieces(state: dict[str, Any]) -> Iterator[bytes]:
    end = b"]}}"
    store = {key: value for key, value in state["store"].items() if key != "objects"}
    rest = {key: value for key, value in state.items() if key != "store"}
    yield orjson.dumps({**rest, "store": {**store, "objects": []}}).removesuffix(end)
    objects = state["store"]["objects"]
    for first in range(0, len(objects), OBJECTS_A_PIECE):
        piece = orjson.dumps(objects[first : first + OBJECTS_A_PIECE])[1:-1]
        yield b"," + piece if first else piece
    yield end


def unpacked(body: bytes) -> dict[str, Any]:
    """The state that was packed; that it is whole, its commit has said."""
    with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
        state: dict[str, Any] = orjson.loads(stream.read())
    return state
