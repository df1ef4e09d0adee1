"""One run of a latency tool in a virtual guest, and what all of their outputs share."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.realtime import Latency
from infra.errors import GuestError
from infra.guests.programs.delays import by_microsecond, lognormal, noise, rest_of_stall, seldom, summed

KERNEL = "5.14.0-503.11.1.rt7.el9_5.x86_64"
RT = "#1 SMP PREEMPT_RT"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What a tool knows when it ends: who and where it is, its arguments, how long it measured.

    `name` tells this run from every other of the guest; `noisy` says whether stress-ng ran beside it.
    """

    vm: str
    name: str
    arguments: tuple[str, ...]
    started: datetime
    seconds: float
    noisy: bool
    model: Latency
    draws: Draws

    def option(self, *names: str) -> str | None:
        """The value of an option, `-D 3d` or `--json=F`."""
        for i, each in enumerate(self.arguments):
            if each in names and i + 1 < len(self.arguments):
                return self.arguments[i + 1]
            if each.partition("=")[0] in names and "=" in each:
                return each.partition("=")[2]
        return None

    def cpus(self, *names: str) -> list[int]:
        """A CPU list such as `2-3,5`, sorted; CPU 0 when none was asked for."""
        found: set[int] = set()
        for part in (self.option(*names) or "0").split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
        return sorted(found)

    @property
    def system(self) -> dict[str, Any]:
        """What uname says."""
        return {
            "sysname": "Linux",
            "nodename": self.vm,
            "release": KERNEL,
            "version": RT,
            "machine": "x86_64",
        }


def seconds_of(text: str) -> float:
    """A duration as these tools write it: a number and one unit.

    Raises:
        GuestError: anything else.
    """
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise GuestError(f"duration {text}: a whole number and one of s, m, h, d is needed")
    return int(found[1]) * _UNITS[found[2]]


@lru_cache(maxsize=8)
def wake_ups(model: Latency, noisy: bool) -> tuple[float, ...]:
    """Shares of a timer's lateness by whole microsecond: wake-up, noise, what is left of a stall."""
    path = summed(lognormal(model.wake_us, model.wake_spread), noise(model, noisy=noisy))
    share = min(1.0, model.stall_per_s * model.stall_us / 1e6)
    return tuple(by_microsecond(summed(path, seldom(share, rest_of_stall(model)))))


def mean_of(histogram: dict[int, int]) -> float:
    """Mean of whole values."""
    return sum(value * count for value, count in histogram.items()) / sum(histogram.values())


def as_json(document: dict[str, Any]) -> bytes:
    """JSON as these tools indent it."""
    return (json.dumps(document, indent=2) + "\n").encode()
