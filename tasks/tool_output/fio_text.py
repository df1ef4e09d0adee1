"""PURE. fio's output taken apart: JSON documents, and the text around them."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from infra.errors import ToolOutputError
from tasks.tool_output.reading import Document

TOOL = "fio"
LONGEST_NOTE = 300
MOST_NOTES = 1_000
"""Different lines that are kept; a verify error is one line per IO."""

_START = re.compile(rb'\{\s*"fio version"')
_END = b"\n}"
_HARMLESS = re.compile(
    r"fio: opendir added [1-9]\d* files$"
    r"|fio: file hash not empty on exit$"
    r"|note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1$"
)
_OF_A_DOCUMENT = re.compile(r'\s*(?:[{}\[\]]|"[^"]*" *:)')
_HOST = re.compile(r"host=(\S+)|client <([^>\s]+)>|fio: client ([^\s,]+)")


class Note(NamedTuple):
    """A line of text around the JSON, how often it was there, whether it is known to be harmless."""

    text: str
    times: int
    harmless: bool

    @property
    def host(self) -> str | None:
        """The host that a client's line is about."""
        found = _HOST.search(self.text)
        return next((each for each in found.groups() if each), None) if found else None


def documents(data: bytes, console: bytes = b"") -> tuple[list[Document], tuple[Note, ...]]:
    """Every document in order, and the notes of the output and of the console.

    Raises ToolOutputError without a document, with a damaged one, and with a piece of one left over.
    """
    found, between, end = [], [], 0
    while start := _START.search(data, end):
        between.append((end, data[end : start.start()]))
        end = _end_of_document(data, start.start())
        found.append(_document(data, start.start(), end))
    between.append((end, data[end:]))
    if not found:
        raise ToolOutputError(TOOL, "line 1", f"there is no result of fio in it, but {_summary(data)}")
    for offset, piece in between:
        _refuse_pieces(data, offset, piece)
    return found, notes([*(piece for _, piece in between), console])


def _end_of_document(data: bytes, start: int) -> int:
    end = data.find(_END, start)
    if end >= 0:
        return end + len(_END)
    compact = data[start:].decode(errors="replace")
    try:
        _, length = json.JSONDecoder().raw_decode(compact)
    except (ValueError, RecursionError):
        return len(data)
    return start + len(compact[:length].encode())


def _document(data: bytes, start: int, end: int) -> Document:
    return Document(TOOL, data[start:end], at=data.count(b"\n", 0, start))


def _refuse_pieces(data: bytes, offset: int, piece: bytes) -> None:
    lines_before = data.count(b"\n", 0, offset)
    for number, line in enumerate(piece.decode(errors="replace").splitlines()):
        if _OF_A_DOCUMENT.match(line):
            position = f"line {lines_before + number + 1}"
            raise ToolOutputError(TOOL, position, f"a piece of JSON outside of a document: {line[:60]!r}")


def notes(pieces: Iterable[bytes]) -> tuple[Note, ...]:
    """The lines of text, each once with its count, in order of appearance."""
    lines = (line.strip() for piece in pieces for line in piece.decode(errors="replace").splitlines())
    counts = Counter(line[:LONGEST_NOTE] for line in lines if line)
    some = list(counts.items())[:MOST_NOTES]
    return tuple(Note(line, count, bool(_HARMLESS.match(line))) for line, count in some)


def _summary(data: bytes) -> str:
    lines = [line.strip() for line in data.decode(errors="replace").splitlines() if line.strip()]
    return repr(lines[0][:120]) if lines else "nothing at all"
