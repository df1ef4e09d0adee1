"""PURE. The layout of fio's latency histograms (stat.h: 29 groups of 64 bins, 1,856 in all).

Values below 128 ns have a bin each; above, each doubling is cut into 64, so a bin's middle is at most
1/128 off. json+ names a bin by its middle, rounded down.
"""

from typing import NamedTuple

BITS = 6
GROUPS = 29
PER_GROUP = 1 << BITS
BINS = GROUPS * PER_GROUP
LAST = BINS - 1
"""Index of the last bin; fio puts anything larger into it."""


class Edges(NamedTuple):
    """Index of a bin and its half-open range in ns."""

    at: int
    lower_ns: int
    upper_ns: int


def edges(index: int) -> Edges:
    """The range of a bin by its index, 0 to `LAST`."""
    if index < 2 * PER_GROUP:
        return Edges(index, index, index + 1)
    shift = (index >> BITS) - 1
    lower = (PER_GROUP + index % PER_GROUP) << shift
    return Edges(index, lower, lower + (1 << shift))


def index_of(value_ns: int) -> int:
    """The bin that fio counts a latency in."""
    shift = value_ns.bit_length() - 1 - BITS
    if shift <= 0:
        return value_ns
    return min(LAST, ((shift + 1) << BITS) + (value_ns >> shift) % PER_GROUP)


def middle_ns(index: int) -> int:
    """What fio prints for a bin."""
    _, lower, upper = edges(index)
    return (lower + upper) // 2


BY_NAME = {str(middle_ns(index)): edges(index) for index in range(BINS)}
"""Every bin by its key in json+."""
BY_MIDDLE = {middle_ns(index): edges(index) for index in range(BINS)}
"""Every bin by the value that a percentile prints."""
