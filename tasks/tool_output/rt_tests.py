"""PURE. What the JSON of every rt-tests program begins with: command line, versions, start and end."""

import re
import shlex
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

from infra.errors import ToolOutputError
from tasks.tool_output.reading import Document, integer, mapping, text

FILE_VERSION = 1


@dataclass(frozen=True, slots=True)
class RtHeader:
    """One run of an rt-tests program; `started_s` and `ended_s` are epoch seconds, guest's wall clock."""

    version: str
    command: tuple[str, ...]
    node: str
    kernel: str
    realtime: bool
    started_s: int
    ended_s: int
    return_code: int
    num_threads: int


def rt_document(tool: str, data: bytes) -> tuple[Document, RtHeader]:
    """The document and its header; rt-tests 2.4 writes `"cmdline:"` with a stray colon, either is read.

    Raises ToolOutputError for anything else than file version 1, and times that are none.
    """
    if not data.strip():
        raise ToolOutputError(tool, "line 1", "nothing was written")
    document = Document(tool, data)
    root = document.root
    document.check(isinstance(root, dict), "", "an object is expected")
    version = integer(document, root, "file_version")
    document.check(version == FILE_VERSION, "file_version", f"{version} is not known, {FILE_VERSION} is")
    sysinfo = mapping(document, root, "sysinfo")
    started, ended = (_time(document, key) for key in ("start_time", "end_time"))
    document.check(started <= ended, "end_time", "it is before the start")
    header = RtHeader(
        version=_with_or_without_colon(document, "rt_test_version"),
        command=_command(document),
        node=text(document, sysinfo, "nodename", "sysinfo"),
        kernel=text(document, sysinfo, "release", "sysinfo"),
        realtime=integer(document, sysinfo, "realtime", "sysinfo") == 1,
        started_s=started,
        ended_s=ended,
        return_code=integer(document, root, "return_code", least=-255),
        num_threads=integer(document, root, "num_threads", least=1),
    )
    return document, header


def _with_or_without_colon(document: Document, key: str) -> str:
    root: dict[str, Any] = document.root
    return text(document, root, f"{key}:" if f"{key}:" in root else key)


def _command(document: Document) -> tuple[str, ...]:
    line = _with_or_without_colon(document, "cmdline")
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        return document.wrong("cmdline:", f"not a command line: {error}")


def _time(document: Document, key: str) -> int:
    written = text(document, document.root, key)
    try:
        read: datetime = parsedate_to_datetime(written)
    except (ValueError, OverflowError):
        document.wrong(key, f"not a time as RFC 2822 has it: {written!r}")
    document.check(format_datetime(read) == written, key, f"there is no such day: {written!r}")
    return int(read.timestamp())


def option(command: tuple[str, ...], short: str, long: str) -> str | None:
    """The value of an option, however it is spelled: `-h 100`, `-h100`, `--histogram=100`."""
    found = None
    for word, following in zip(command, (*command[1:], ""), strict=True):
        glued = re.fullmatch(rf"{short}=?(?P<short>.+)|--{long}=(?P<long>.+)", word)
        if word in (short, f"--{long}"):
            found = following
        elif glued:
            found = glued["short"] or glued["long"]
    return found


def whole(document: Document, written: str) -> int:
    """A whole number > 0 from the command line."""
    if not re.fullmatch(r"[1-9]\d{0,8}", written):
        document.wrong("cmdline:", f"a whole number > 0 is expected, not {written!r}")
    return int(written)
