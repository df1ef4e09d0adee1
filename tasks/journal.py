"""What happened to the observer itself while a batch was measured, second by second.

Only seconds in which something is worth saying have a row: a lag was measured, a request was
refused or waited, a watch ended. Disturbances are counted here and judged elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

NS = 1e9
STAMP_RESOLUTION_S = 1.0
"""Objects are dated in whole seconds."""
KEPT_S = 3.0
"""A request that the API keeps for so long, answering nobody else meanwhile, was not answered."""
COUNTED = ("http_429", "http_5xx", "relists", "resumed")
LARGEST = ("watch_lag_ms", "loop_lag_ms")
ADDED = ("throttled_s",)
TOLD = {"lock_aborts": int, "client_throttled_s": float}
"""What a cluster tells of itself: null where it does not, as every live one."""


@dataclass(slots=True)
class Journal:
    """Counts and largest values per second from the release, and when the API did not answer.

    `outages` are spans (ns, ns) from the first request that was not answered to the next that was;
    `errors_ns` are the moments of 5xx answers, `round_trips_s` those of heartbeats.
    """

    released_ns: int = 0
    outages: list[tuple[int, int]] = field(default_factory=list)
    errors_ns: list[int] = field(default_factory=list)
    round_trips_s: list[float] = field(default_factory=list)
    refused: int = 0
    clock_skew_s: float = 0.0
    clock_moved_s: float = 0.0
    watch_behind_s: float = 0.0
    connections_lost: int = 0
    foreign: set[str] = field(default_factory=set)
    is_told: bool = False
    _seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    _last_stamp: str = ""
    _silent_since_ns: int | None = None
    _answered_ns: int = 0

    def count(self, what: str, ns: int, amount: float = 1) -> None:
        """Something happened at `ns`; what comes before the release belongs to no second."""
        if self.released_ns and ns >= self.released_ns:
            second = self._second(ns)
            second[what] = second.get(what, 0) + amount

    def largest(self, what: str, ns: int, value: float) -> None:
        """A lag was measured at `ns`; a second keeps its largest."""
        if self.released_ns and ns >= self.released_ns:
            second = self._second(ns)
            second[what] = max(second.get(what, 0.0), value)

    def told(self, counted: Iterable[tuple[str, int, float]] | None) -> None:
        """What the cluster tells of itself: what, when, how much; None: it tells nothing."""
        self.is_told = counted is not None
        for what, ns, amount in counted or ():
            self.count(what, ns, amount)

    def _second(self, ns: int) -> dict[str, float]:
        return self._seconds.setdefault(int((ns - self.released_ns) // NS), {})

    def failed(self, ns: int) -> None:
        """The server did not carry out a request (5xx, or no answer)."""
        self.errors_ns.append(ns)
        self.count("http_5xx", ns)
        self.silent(ns)

    def silent(self, ns: int) -> None:
        """From now on, or earlier, the API does not answer."""
        if self._silent_since_ns is None:
            self._silent_since_ns = ns

    def answered(self, ns: int, sent_ns: int | None = None) -> None:
        """The API answers, at `ns`, to what was asked at `sent_ns`."""
        since_ns = self._silent_since_ns
        kept_ns = ns if sent_ns is None else max(sent_ns, self._answered_ns)
        if since_ns is None and ns - kept_ns > KEPT_S * NS:
            since_ns = kept_ns
        if since_ns is not None:
            self.outages.append((since_ns, ns))
        self._silent_since_ns, self._answered_ns = None, ns

    def join(self, other: "Journal", shift_ns: int) -> None:
        """Add what another process wrote down of the same batch; `shift_ns` brings its clock to ours."""
        self.outages += [(a + shift_ns, b + shift_ns) for a, b in other.outages]
        self.errors_ns += [ns + shift_ns for ns in other.errors_ns]
        self.round_trips_s += other.round_trips_s
        self.refused += other.refused
        self.connections_lost += other.connections_lost
        self.clock_skew_s = max(self.clock_skew_s, other.clock_skew_s)
        self.clock_moved_s = max(self.clock_moved_s, other.clock_moved_s)
        self.watch_behind_s = max(self.watch_behind_s, other.watch_behind_s)
        self.foreign |= other.foreign
        self.is_told |= other.is_told
        for second, facts in other._seconds.items():
            mine = self._seconds.setdefault(second, {})
            for what, value in facts.items():
                before = mine.get(what, 0.0)
                mine[what] = max(before, value) if what in LARGEST else before + value

    def close(self, ns: int) -> None:
        """Nobody asks any more: an outage that goes on is counted up to here."""
        self.answered(ns)

    def outages_over(self, limit_s: float) -> list[tuple[int, int]]:
        """Spans longer than that in which the API answered nothing."""
        return [span for span in self.outages if span[1] - span[0] > limit_s * NS]

    def errors_outside(self, spans: list[tuple[int, int]]) -> int:
        """How many 5xx answers lie in none of these spans."""
        return sum(not any(a <= ns <= b for a, b in spans) for ns in self.errors_ns)

    def moved(self, wall_s: float, clock_s: float) -> None:
        """This machine's wall clock went on by so much while its monotonic clock did by so much."""
        self.clock_moved_s = max(self.clock_moved_s, abs(wall_s - clock_s))

    def dated(self, stamp: str, asked: datetime, answered: datetime) -> None:
        """An object that was made between two moments of our wall clock says when: how far is that off?"""
        if stamp and stamp != self._last_stamp:
            self._last_stamp = stamp
            made = datetime.fromisoformat(stamp)
            early_s = (asked - made).total_seconds() - STAMP_RESOLUTION_S
            late_s = (made - answered).total_seconds()
            self.clock_skew_s = max(self.clock_skew_s, early_s, late_s)

    def rows(self, stage: str, size: int) -> list[dict[str, Any]]:
        """Rows of table `observer`: what was not measured in a second is null, what is counted is not."""
        return [
            {
                "stage": stage,
                "batch": size,
                "second": second,
                **{name: facts.get(name) for name in LARGEST},
                **{name: facts.get(name, 0.0) for name in ADDED},
                **{name: int(facts.get(name, 0)) for name in COUNTED},
                **{name: kind(facts.get(name, 0)) if self.is_told else None for name, kind in TOLD.items()},
            }
            for second, facts in sorted(self._seconds.items())
        ]
