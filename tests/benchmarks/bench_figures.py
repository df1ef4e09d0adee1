"""One line of a benchmark, and how two contenders are measured: in turns, in one run, on one machine."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import click

Measure = Callable[[], float]
"""Does the work once; returns what it cost."""


class Figure(NamedTuple):
    """One line: what, ours, peer, ratio, n. Without a peer the ratio is to the target."""

    what: str
    ours: float
    unit: str
    peer: float
    peer_name: str
    n: str
    limit: float | None = None

    @property
    def ratio(self) -> float:
        """Ours divided by the peer's: below 1 is better than the peer."""
        return self.ours / self.peer

    @property
    def holds(self) -> bool:
        """Whether the ratio is within its limit; a figure without a limit claims nothing."""
        return self.limit is None or self.ratio <= self.limit

    def __str__(self) -> str:
        """The line as it is printed."""
        claim = "" if self.limit is None else f" (target <= {self.limit:g}: {'yes' if self.holds else 'NO'})"
        ours, peer = _digits(self.ours), _digits(self.peer)
        return (
            f"{self.what} | ours {ours} {self.unit} | {self.peer_name} {peer} {self.unit} "
            f"| ratio {self.ratio:.2f}{claim} | {self.n}"
        )


def against_target(what: str, ours: float, unit: str, target: float, n: str) -> Figure:
    """A figure whose peer is a fixed target."""
    return Figure(what, ours, unit, target, "target", n, limit=1.0)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def in_turns(ours: Measure, peer: Measure, rounds: int) -> tuple[list[float], list[float]]:
    """Both, `rounds` times, as A B A B: whatever else the machine does meets both alike."""
    pairs = [(ours(), peer()) for _ in range(rounds)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds (user and system) of this process that `work` took."""
    began = time.process_time()
    work()
    return time.process_time() - began


def load() -> str:
    """The load average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def machine() -> str:
    """What an absolute figure depends on."""
    return f"{os.cpu_count()} CPUs, Python {platform.python_version()}, load average {load()}"


@contextmanager
def on_this_machine() -> Iterator[None]:
    """Say the machine and its load before, and its load after."""
    click.echo(f"machine: {machine()}")
    yield
    click.echo(f"load average at the end: {load()}")


def show(figures: Sequence[Figure]) -> bool:
    """Print every figure; returns whether each is within its limit."""
    for figure in figures:
        click.echo(str(figure))
    return all(figure.holds for figure in figures)
