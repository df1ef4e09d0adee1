"""PURE. The line by which an SSH server names itself (RFC 4253, section 4.2)."""

from typing import NamedTuple

LONGEST = 1024
"""Bytes looked at: the line has at most 255, and other lines may precede it."""


class Banner(NamedTuple):
    """`ready`: the server's line is complete; `wrong`: what came instead, as far as it came."""

    ready: bool
    wrong: str


def read_banner(data: bytes) -> Banner:
    """What the first bytes of a connection say."""
    for line in data.split(b"\n")[:-1]:
        if line.startswith((b"SSH-2.0-", b"SSH-1.99-")):
            return Banner(ready=True, wrong="")
    first = data.split(b"\n", 1)[0]
    is_cut = first == data and len(data) < LONGEST
    return Banner(ready=False, wrong="" if is_cut else _shown(first))


def _shown(line: bytes) -> str:
    text = line[:60].decode("ascii", "replace").strip()
    return "".join(each if each.isprintable() else "?" for each in text) or "an empty line"
