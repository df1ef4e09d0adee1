"""One measured batch: a timeline of steps per VirtualMachine on the observer's clock.

Every VM has one state, `ok | timeout | failed | lost`; while it is open (not decided yet) its
steps take the first moment at which they were seen to hold. What was not seen stays None.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from infra.clock import Clock
from tasks.journal import Journal
from tasks.records import NOT_OK, STEPS

NS = 1e9
Moments = list[int | None]


class Batch:
    """N VirtualMachines, released together at `released_ns`; index `i` is a VM throughout.

    `finished` is done when no VM is open any more. Observers write into `seen` and `not_yet`, the
    last moment at which nothing had been heard of the step; `lag_ns` says how much later than it
    happened that may have been heard, by step (None: not measured). `heard_ns` is how far the
    stream whose events are being told had been heard before them. `braked` says why no more of
    the batch was issued. `turns` are the VMs' places in the order of requests; those of a share have
    gaps. `shards` are rows of the processes that took shares of the batch.
    """

    def __init__(self, stage: str, names: Sequence[str]) -> None:
        n = len(names)
        self.stage = stage
        self.names = list(names)
        self.index = {name: i for i, name in enumerate(names)}
        self.seen: dict[str, Moments] = {step: [None] * n for step in ("acknowledged", *STEPS[stage])}
        self.not_yet: dict[str, Moments] = {step: [None] * n for step in self.seen}
        self.lag_ns: dict[str, int | None] = {**dict.fromkeys(STEPS[stage]), "acknowledged": 0}
        self.heard_ns = 0
        self.journal = Journal()
        self.braked = ""
        self.turns: Sequence[int] = range(n)
        self.shards: list[dict[str, Any]] = []
        self.cell: tuple[int, int] | None = None
        self.requested: Moments = [None] * n
        self.attempts = [0] * n
        self.state: list[str] = [""] * n
        self.code: list[str | None] = [None] * n
        self.reason: list[str | None] = [None] * n
        self.ended: Moments = [None] * n
        self.uids: list[str] = [""] * n
        self.throttled = 0
        self.unavailable = 0
        self.released_ns = 0
        self.released_at: datetime | None = None
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = n

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shards_lost(self) -> list[int]:
        """The shards whose process is gone."""
        return [row["shard"] for row in self.shards if row["state"] == "lost"]

    def release(self, clock: Clock, at_ns: int | None = None) -> None:
        """T0 of every step of every VM, now or at a moment close by; what held before holds from then on."""
        now_ns = clock.now_ns()
        self.released_ns = now_ns if at_ns is None else at_ns
        self.released_at = clock.wall() + timedelta(microseconds=(self.released_ns - now_ns) // 1000)
        self.journal.released_ns = self.released_ns
        for column in (*self.seen.values(), self.ended):
            for i, ns in enumerate(column):
                if ns is not None:
                    column[i] = self.released_ns
        self._check()

    def mark(self, step: str, i: int, ns: int, not_yet_ns: int | None = None) -> None:
        """A step of an open VM was seen to hold; only the first time counts.

        `not_yet_ns` defaults to how far the stream that is being told had been heard before.
        """
        column = self.seen[step]
        if column[i] is None and not self.state[i]:
            column[i] = ns
            self.not_yet[step][i] = self.heard_ns if not_yet_ns is None else not_yet_ns

    def succeed(self, i: int, ns: int | None) -> None:
        """A VM has reached the batch's end point, at `ns`."""
        if not self.state[i]:
            self.ended[i] = ns
            self.end(i, "ok")

    def end(self, i: int, state: str, reason: str | None = None, code: str = NOT_OK) -> None:
        """Decide a VM; the first decision stays. `code` is the reason's, unless the VM is ok."""
        if self.state[i]:
            return
        self.state[i] = state
        self.code[i] = None if state == "ok" else code
        self.reason[i] = reason
        self._open -= 1
        self._check()

    def _check(self) -> None:
        if self._open == 0 and self.released_ns and not self.finished.done():
            self.finished.set_result(None)

    def close(self, state: str, reason: str | None = None) -> None:
        """Decide every VM that is still open."""
        for i, decided in enumerate(self.state):
            if not decided:
                self.end(i, state, reason)

    def where(self, *states: str) -> list[int]:
        """Which VMs are in one of these states."""
        return [i for i, state in enumerate(self.state) if state in states]

    def seconds(self, moments: Moments) -> list[float | None]:
        """Moments as seconds from the release."""
        start = self.released_ns
        return [None if ns is None else (ns - start) / NS for ns in moments]

    def last_s(self, moments: Moments) -> float | None:
        """The last of some moments, from the release; None when one of them was not seen."""
        reached = [ns for ns in moments if ns is not None]
        return (max(reached) - self.released_ns) / NS if reached and len(reached) == len(moments) else None

    def rows(self, size: int) -> list[dict[str, Any]]:
        """One row per VM, columns as in the stage's VM table."""
        columns = self._columns()
        names = list(columns)
        return [
            {"batch": size, **dict(zip(names, values, strict=True))}
            for values in zip(*columns.values(), strict=True)
        ]

    def _columns(self) -> dict[str, Sequence[Any]]:
        columns: dict[str, Sequence[Any]] = {
            "vm": self.names,
            "state": self.state,
            "reason": self.code,
            "detail": self.reason,
            "attempts": self.attempts,
            "requested_s": self.seconds(self.requested),
        }
        for step in STEPS[self.stage]:
            columns[f"{step}_s"] = self.seconds(self.seen[step])
            columns[f"{step}_error_s"] = self.errors_s(step)
        return columns

    def errors_s(self, step: str) -> list[float | None]:
        """From the last "not yet" to the first "yes"; null where nobody knows the first."""
        pairs = zip(self.earliest(step), self.seen[step], strict=True)
        return [None if a is None or b is None else (b - a) / NS for a, b in pairs]

    def earliest(self, step: str) -> Moments:
        """The earliest moment at which a step that was seen may have begun to hold, of each VM.

        Not before the release, nor before the VM's own request left.
        """
        lag_ns = self.lag_ns[step]
        if lag_ns is None:
            return [None] * len(self)
        start, rows = self.released_ns, zip(self.not_yet[step], self.seen[step], self.requested, strict=True)
        return [
            None if seen is None or heard is None else _floor(seen, (heard - lag_ns, start, asked or 0))
            for heard, seen, asked in rows
        ]


def _floor(seen_ns: int, bounds: tuple[int, ...]) -> int:
    """The latest bound that does not contradict what was seen."""
    return max(ns for ns in (*bounds, 0) if ns <= seen_ns)
