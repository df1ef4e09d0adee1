"""PURE. How far the monotonic clock of another process is from ours, and how sure that is.

Nobody is asked how late a message was: a clock that is read between two moments of ours was read at one of
them, at the earliest or at the latest, or in between. That holds however unequal the two ways are.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Trip(NamedTuple):
    """A clock was read at `there_ns` of its own, between `sent_ns` and `back_ns` of ours."""

    sent_ns: int
    there_ns: int
    back_ns: int


class Offset(NamedTuple):
    """What to add to a moment of theirs to have it on our clock: `ns`, at most `error_ns` more or less."""

    ns: int
    error_ns: int

    @property
    def least_ns(self) -> int:
        """The smallest that it can be."""
        return self.ns - self.error_ns

    @property
    def most_ns(self) -> int:
        """The largest that it can be."""
        return self.ns + self.error_ns


def offset_of(trips: Iterable[Trip]) -> Offset:
    """The offset by the quickest of some trips; the error is half of the time that it took."""
    trip = min(trips, key=lambda trip: trip.back_ns - trip.sent_ns)
    return _between(trip.sent_ns - trip.there_ns, trip.back_ns - trip.there_ns)


def over(before: Offset, after: Offset) -> Offset:
    """The offset at any moment between two measurements, of clocks whose rates differ a little."""
    return _between(min(before.least_ns, after.least_ns), max(before.most_ns, after.most_ns))


def _between(least_ns: int, most_ns: int) -> Offset:
    error_ns = (most_ns - least_ns + 1) // 2
    return Offset(least_ns + error_ns, error_ns)
