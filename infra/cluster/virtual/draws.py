"""Random numbers keyed by seed, purpose and object name: no stream, no order, no state.

The same object gets the same draw whenever it is asked for, so results depend neither on the
order of events nor on what ran before. Draws are rounded to microseconds because the last bit
of `exp` and `log` differs between C libraries.
"""

from hashlib import blake2b
from math import exp, log
from statistics import NormalDist

_NORMAL = NormalDist()


class Draws:
    """The random numbers of one virtual cluster."""

    def __init__(self, seed: int) -> None:
        self._key = str(seed).encode()

    def uniform(self, purpose: str, name: str) -> float:
        """A number in (0, 1)."""
        digest = blake2b(f"{purpose}|{name}".encode(), digest_size=8, key=self._key).digest()
        return (int.from_bytes(digest, "big") + 0.5) / 2**64

    def below(self, limit: int, purpose: str, name: str) -> int:
        """An integer in [0, limit)."""
        return int(self.uniform(purpose, name) * limit)

    def around_s(self, median_s: float, spread: float, purpose: str, name: str) -> float:
        """A log-normal duration: `spread` is the standard deviation of its logarithm."""
        if median_s <= 0:
            return 0.0
        if spread <= 0:
            return median_s
        return round(exp(log(median_s) + spread * _NORMAL.inv_cdf(self.uniform(purpose, name))), 6)
