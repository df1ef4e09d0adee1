"""PURE. How often somebody may ask, and which signatures were used already."""

from collections import OrderedDict
from typing import NamedTuple

ADDRESSES = 4096
PROOFS = 100_000


class Pace(NamedTuple):
    """So many a second, so many at once."""

    per_s: float
    burst: int


class Buckets:
    """One token bucket per key; the least recently used are forgotten, which is in the key's favour."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, key: str, now_s: float, cost: float = 1.0) -> float:
        """Take a token: 0 when there was one, else how long until there is. A cost of 0 only looks."""
        level, at_s = self._levels.get(key, (float(self._pace.burst), now_s))
        level = min(self._pace.burst, level + (now_s - at_s) * self._pace.per_s)
        if level < max(cost, 1.0):
            return (1.0 - level) / self._pace.per_s
        if cost:
            self._levels[key] = (level - cost, now_s)
            self._levels.move_to_end(key)
            if len(self._levels) > ADDRESSES:
                self._levels.popitem(last=False)
        return 0.0


class Proofs:
    """Signatures within their window, each with the delivery that it came with."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def is_replayed(self, proof: str, delivery: str, now_s: float) -> bool:
        """Whether the signature came before, with another delivery id."""
        while self._seen and next(iter(self._seen.values()))[0] < now_s - self._window_s:
            self._seen.popitem(last=False)
        if proof not in self._seen:
            self._seen[proof] = (now_s, delivery)
            if len(self._seen) > PROOFS:
                self._seen.popitem(last=False)
        return self._seen[proof][1] != delivery
