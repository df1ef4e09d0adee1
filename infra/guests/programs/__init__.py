"""Programs of virtual guests: each answers in the real tool's own format."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Invocation(NamedTuple):
    """One program started in a guest: its VirtualMachine, arguments (without the name) and files."""

    vm: str
    arguments: tuple[str, ...]
    files: dict[str, bytes]
    """The guest's files by path; a program reads its input and writes its output here."""


Program = Callable[[Invocation], Awaitable[bytes]]
"""Runs on the world's clock, returns standard output, raises GuestError with the tool's own words."""
