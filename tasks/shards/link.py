"""What a run asks of a process that takes a share of its batch, and when that may begin.

The functions are called in that process, in another thread than its share: they set plain values, at which
the share looks. A share of which nobody asks any more stops by itself.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from infra.clock import Clock, MonotonicClock
from tasks.brakes import Brake

POLL_S = 0.02
SILENCE_S = 45.0
"""A run that has not asked for so long is gone: its VMs are not to be driven any more."""
NS = 1e9


class Look(NamedTuple):
    """How far a share is: observers run, and its own brake (""): not pulled."""

    is_ready: bool = False
    braked: str = ""


@dataclass(slots=True)
class Link:
    """A share at work in this process."""

    number: int
    slots: tuple[int, ...]
    brake: Brake | None = None
    is_ready: bool = False
    is_stopped: bool = False
    release_ns: int | None = None
    late_ns: int = 0
    braked: str = ""
    heard_s: float = field(default_factory=time.monotonic)

    async def turn(self, clock: Clock, brake: Brake | None) -> int:
        """Wait until it is time; the moment at which it was to be."""
        self.brake, self.is_ready = brake, True
        while self.release_ns is None:
            await clock.sleep(POLL_S)
        await clock.sleep((self.release_ns - clock.now_ns()) / NS)
        while clock.now_ns() < self.release_ns:
            await clock.sleep((self.release_ns - clock.now_ns()) / NS)
        self.late_ns = clock.now_ns() - self.release_ns
        return self.release_ns

    def obey(self) -> bool:
        """Pull the brake that others pulled; whether to go on."""
        if self.braked and self.brake is not None:
            self.brake.pull(self.braked)
        return not self.is_stopped and time.monotonic() - self.heard_s < SILENCE_S


_AT_WORK: dict[str, Link] = {}


@contextmanager
def linked(token: str, link: Link) -> Iterator[None]:
    """Let the run reach this share for the length of the block."""
    _AT_WORK[token] = link
    try:
        yield
    finally:
        del _AT_WORK[token]


def look(token: str) -> Look:
    """How far the share is, if it has begun; it hears that the run is there."""
    link = _AT_WORK.get(token)
    if link is None:
        return Look()
    link.heard_s = time.monotonic()
    return Look(link.is_ready, link.brake.why if link.brake is not None else "")


def read_clock() -> int:
    """The clock of every share of this process, ns."""
    return MonotonicClock().now_ns()


def release(token: str, ns: int) -> None:
    """When its requests leave, on its own clock."""
    _AT_WORK[token].release_ns = ns


def hold(token: str, why: str) -> None:
    """Another share's brake was pulled."""
    if link := _AT_WORK.get(token):
        link.braked = why


def stop(token: str) -> None:
    """Issue nothing more, and say what is known."""
    if link := _AT_WORK.get(token):
        link.is_stopped = True


def whereabouts() -> tuple[str, int]:
    """Host and process."""
    return socket.gethostname(), os.getpid()
