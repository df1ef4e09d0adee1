"""Brakes: issuing stops, for the sake of those who share the cluster, when a batch does them harm.

Nodes stop being Ready, VMs of others fail, the API is slow: `tasks.braking` looks, a `Brake` judges.
What was begun by then goes on and is cleaned up as ever; what was not is never sent.
"""

import asyncio
from collections import deque

from infra.errors import StageError
from tasks.analysis.percentiles import nearest_rank
from tasks.batch import NS
from tasks.thresholds import Brakes

WINDOW_S = 5.0
"""Answers of so long are looked at together."""
FEWEST = 10
"""A percentile of fewer answers says nothing."""


class Braked(StageError):
    """The brake was pulled before a request left."""


def stop_at_brake(braked: str) -> None:
    """After a batch that was braked no larger one follows.

    Raises:
        StageError: the brake was pulled.
    """
    if braked:
        raise StageError(f"the brake was pulled: {braked}; look at the cluster, or raise [brakes]")


class Brake:
    """Pulled once, if at all: `pulled` is then why. Requests of a batch say when they leave and come back."""

    def __init__(self, limits: Brakes) -> None:
        self.pulled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._limits = limits
        self._left_ns: dict[int, int] = {}
        self._answers: deque[tuple[int, int]] = deque()
        self._ready: set[str] = set()
        self._lost: set[str] = set()
        self._failed_before: set[str] | None = None
        self._failing: set[str] = set()

    @property
    def why(self) -> str:
        """Why it was pulled; empty when it was not."""
        return self.pulled.result() if self.pulled.done() else ""

    def left(self, i: int, ns: int) -> None:
        """The request of VM i is about to leave.

        Raises:
            Braked: it must not.
        """
        if self.pulled.done():
            raise Braked(self.why)
        self._left_ns[i] = ns

    def came_back(self, i: int, ns: int) -> None:
        """The request of VM i was answered, or given up."""
        left_ns = self._left_ns.pop(i, None)
        if left_ns is not None:
            self._answers.append((ns, ns - left_ns))

    def is_under_way(self, i: int) -> bool:
        """Whether the request of VM i has left and has not come back."""
        return i in self._left_ns

    def node(self, name: str, *, is_ready: bool) -> None:
        """A node is Ready, or is not."""
        if is_ready:
            self._ready.add(name)
        elif name in self._ready:
            self._lost.add(name)
            if len(self._lost) > self._limits.nodes_lost:
                self.pull(f"not Ready any more: node {', '.join(sorted(self._lost))}")

    def failing(self, names: set[str], *, is_all: bool) -> None:
        """VMs of others that fail; `is_all`: no other does. Those that failed at first are not our doing."""
        if self._failed_before is None and is_all:
            self._failed_before = names
        self._failing |= names - (self._failed_before or set())
        if len(self._failing) > self._limits.foreign_failed:
            self.pull(f"VMs of others began to fail: {min(self._failing)} is one of {len(self._failing)}")

    def look(self, ns: int) -> None:
        """Judge the API by the answers of the last seconds, and by those that it has kept for too long."""
        while self._answers and self._answers[0][0] < ns - WINDOW_S * NS:
            self._answers.popleft()
        limit_ns = self._limits.api_p99_s * NS
        kept = [ns - left_ns for left_ns in self._left_ns.values() if ns - left_ns > limit_ns]
        took = [*(took_ns for _, took_ns in self._answers), *kept]
        p99_ns = nearest_rank(took, 99) if len(took) >= FEWEST else None
        if p99_ns is not None and p99_ns > limit_ns:
            self.pull(f"the API's p99 is {p99_ns / NS:.1f} s (limit {self._limits.api_p99_s:g} s)")

    def blind(self, why: str) -> None:
        """What is looked at cannot be seen: harm would go on unnoticed."""
        self.pull(f"harm to others could not be seen: {why}")

    def pull(self, why: str) -> None:
        """Stop issuing, if it was not stopped before."""
        if not self.pulled.done():
            self.pulled.set_result(why)
