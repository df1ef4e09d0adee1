"""PURE. Typed reading of a tool's JSON: each value is asked for by path, and named by line when wrong."""

import json
import re
from collections.abc import Iterable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined,unused-ignore]
from math import isfinite
from typing import Any, NoReturn

import orjson

from infra.errors import ToolOutputError

LARGEST_INTEGER = 2**64 - 1
"""The tools count in 64 bits; anything beyond is damage."""

_BLANK = re.compile(r"[\s,:]*")
_WORDS = 100


class Document:
    """One JSON object of a tool's output, and where it stands in it."""

    def __init__(self, tool: str, data: bytes, at: int = 0) -> None:
        """Decode `data` whole; `at` counts the lines of the output before it, for positions."""
        self.tool, self.lines_before, self._data = tool, at, data
        try:
            self.root: Any = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self.root = None
            position = f"line {self.lines_before + error.lineno} column {error.colno}"
            raise ToolOutputError(tool, position, f"not JSON: {error.msg}{saying(data)}") from error

    def check_repeats(self, key: str, times: int) -> None:
        """Refuse an object that has a key twice, as damage leaves it: JSON readers keep the last silently.

        `times` is how often the key is in what was read.
        """
        found = self._data.count(b'"%s"' % key.encode())
        if found != times:
            self.wrong("", f'"{key}" is there {found} times, {times} are read: an object has it twice')

    def wrong(self, path: str, problem: str) -> NoReturn:
        """Refuse the document for what stands at `path`."""
        raise ToolOutputError(self.tool, self.position(path), problem)

    def position(self, path: str) -> str:
        """`line N (path)`: the line of the value at a path like `jobs[0].read.iops`."""
        text = self._data.decode(errors="replace")
        offset = _offset_of(text, [part for part in re.split(r"\x1f", path) if part])
        line = self.lines_before + text.count("\n", 0, offset) + 1
        return f"line {line} ({shown(path)})" if path else f"line {line}"

    def check(self, holds: bool, path: str, problem: str) -> None:
        """Refuse the document unless `holds`."""
        if not holds:
            self.wrong(path, problem)


def under(path: str, key: str | int) -> str:
    """The path of a member."""
    return f"{path}\x1f{key}"


def shown(path: str) -> str:
    """A path as people read it: `jobs/0/read/iops`."""
    return path.strip("\x1f").replace("\x1f", "/")


def member(document: Document, holder: Mapping[str, Any], key: str, path: str) -> Any:
    """The value of a key that has to be there."""
    if key not in holder:
        document.wrong(path, f'"{key}" is missing')
    return holder[key]


def mapping(document: Document, holder: Mapping[str, Any], key: str, path: str = "") -> dict[str, Any]:
    """The object under a key."""
    value = member(document, holder, key, path)
    if not isinstance(value, dict):
        document.wrong(under(path, key), f"an object is expected, not {_words(value)}")
    return value


def listing(document: Document, holder: Mapping[str, Any], key: str, path: str = "") -> list[Any]:
    """The array under a key."""
    value = member(document, holder, key, path)
    if not isinstance(value, list):
        document.wrong(under(path, key), f"an array is expected, not {_words(value)}")
    return value


def integer(document: Document, holder: Mapping[str, Any], key: str, path: str = "", least: int = 0) -> int:
    """The whole number of 64 bits under a key, at least `least`."""
    value = member(document, holder, key, path)
    if type(value) is not int or not least <= value <= LARGEST_INTEGER:
        document.wrong(under(path, key), f"a whole number >= {least} is expected, not {_words(value)}")
    return value


def number(document: Document, holder: Mapping[str, Any], key: str, path: str = "") -> float:
    """The finite number >= 0 under a key."""
    value = member(document, holder, key, path)
    if type(value) not in (int, float) or not isfinite(value) or value < 0:
        document.wrong(under(path, key), f"a number >= 0 is expected, not {_words(value)}")
    return float(value)


def text(document: Document, holder: Mapping[str, Any], key: str, path: str = "") -> str:
    """The text under a key."""
    value = member(document, holder, key, path)
    if not isinstance(value, str):
        document.wrong(under(path, key), f"text is expected, not {_words(value)}")
    return value


def saying(data: bytes) -> str:
    """What is there instead of a document: the first line, or the last one of a traceback; else nothing."""
    lines = [line.strip() for line in data.decode(errors="replace").split("\n") if line.strip()] or [""]
    told = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return "" if told.startswith(("{", "---")) else f"; it says {told[:_WORDS]!r}"


def _words(value: Any) -> str:
    words = json.dumps(value)
    return words if len(words) <= _WORDS else f"{words[:_WORDS]}..."


def _offset_of(source: str, parts: Iterable[str]) -> int:
    """Where the value at a path begins; the nearest holder of it when it is not there. Reads good JSON."""
    offset = _BLANK.match(source).end()  # type: ignore[union-attr]
    for part in parts:
        found = _member_offset(source, offset, part)
        if found is None:
            break
        offset = found
    return offset


def _member_offset(source: str, offset: int, part: str) -> int | None:
    is_object, decoder, index = source[offset] == "{", json.JSONDecoder(), 0
    if source[offset] not in "{[":
        return None
    offset = _skip(source, offset + 1)
    while source[offset] not in "}]":
        key = str(index)
        if is_object:
            key, offset = scanstring(source, offset + 1)
            offset = _skip(source, offset)
        if key == part:
            return offset
        _, offset = decoder.raw_decode(source, offset)
        offset, index = _skip(source, offset), index + 1
    return None


def _skip(source: str, offset: int) -> int:
    return _BLANK.match(source, offset).end()  # type: ignore[union-attr]
