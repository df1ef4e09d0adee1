"""PURE. Histograms of integer nanoseconds: merged exactly, their percentiles by rank, maxima over time.

A histogram is a sorted tuple of `Bin`s that do not overlap; a bin holds values from `lower_ns` up to,
but not including, `upper_ns`. Percentiles of a fleet come from merged bins, never from averaged
percentiles. Samples that a tool counted but did not bin (its overflow) rank after every bin.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

from tasks.analysis.percentiles import rank_of

LONG_DOUBLE_BITS = 64
"""Mantissa of x86-64's long double, in which fio computes the rank of a percentile."""

FAR_FROM_WHOLE = 1e-14
"""Relative distance from a whole number beyond which no rounding moves a rank."""


class Bin(NamedTuple):
    """`count` values of at least `lower_ns` and less than `upper_ns`."""

    lower_ns: int
    upper_ns: int
    count: int  # type: ignore[assignment]  # the name of the column; tuple.count is not needed

    @property
    def middle_ns(self) -> int:
        """The middle, rounded down: what fio prints for a bin."""
        return (self.lower_ns + self.upper_ns) // 2


Histogram = tuple[Bin, ...]
Rank = Callable[[int, float], int]


class Pool(NamedTuple):
    """Samples of one quantity from any number of sources, together.

    `n` counts all samples, `overflow` those of them that are in no bin. min, max and mean are over
    all `n`; None when there are none or a source did not know.
    """

    n: int
    min_ns: int | None
    max_ns: int | None
    mean_ns: float | None
    overflow: int
    bins: Histogram


EMPTY = Pool(0, None, None, None, 0, ())


def merge(histograms: Iterable[Iterable[Bin]]) -> Histogram:
    """All bins together, equal bins added, in order. Exact, whatever the order of the sources.

    Raises ValueError for a negative count, an empty bin range, and bins that overlap without being
    equal: histograms of different layouts cannot be merged.
    """
    counts: dict[tuple[int, int], int] = {}
    for histogram in histograms:
        for lower_ns, upper_ns, count in histogram:
            edges = (lower_ns, upper_ns)
            counts[edges] = counts.get(edges, 0) + count
    return checked(Bin(*edges, count) for edges, count in sorted(counts.items()))


def checked(bins: Iterable[Bin]) -> Histogram:
    """The bins as a histogram; ValueError when they are not one (order, overlap, negative)."""
    histogram = tuple(bins)
    for each in histogram:
        if each.lower_ns >= each.upper_ns or each.count < 0:
            raise ValueError(f"not a bin: [{each.lower_ns}, {each.upper_ns}) ns with count {each.count}")
    for a, b in pairwise(histogram):
        if b.lower_ns < a.upper_ns:
            raise ValueError(
                f"bins [{a.lower_ns}, {a.upper_ns}) and [{b.lower_ns}, {b.upper_ns}) ns overlap:"
                " of different layouts, or out of order"
            )
    return histogram


def total(bins: Iterable[Bin]) -> int:
    """How many values are in the bins."""
    return sum(each.count for each in bins)


def percentile_bins(
    bins: Sequence[Bin], quantiles: Sequence[float], overflow: int = 0, rank: Rank = rank_of
) -> list[Bin | None]:
    """The bin that each percentile (0 to 100) falls into; None where it falls among `overflow`, or nothing.

    `overflow` samples lie above every bin. The rank is the exact nearest rank unless `rank` says else.
    """
    cumulated = list(accumulate([count for _, _, count in bins]))
    n = (cumulated[-1] if cumulated else 0) + overflow
    if not n:
        return [None] * len(quantiles)
    at = [bisect_left(cumulated, rank(n, q)) for q in quantiles]
    return [bins[i] if i < len(bins) else None for i in at]


def percentile_bin(bins: Sequence[Bin], q: float, overflow: int = 0) -> Bin | None:
    """The bin of one percentile by exact nearest rank; None beyond the bins or without samples."""
    return percentile_bins(bins, (q,), overflow)[0]


def fio_rank(n: int, q: float) -> int:
    """The rank that fio takes for a percentile: the least whole number >= q / 100 x n as it computes it.

    fio (stat.c, calc_clat_percentiles) takes the first bin whose cumulated count is at least
    `(long double) q / 100.0 * n`. The two roundings to 64 bits are repeated here, so that 99.9 % of
    1,000 is rank 1,000 (the double next to 99.9 lies above it), as fio says.
    """
    near = q / 100 * n
    if abs(near - round(near)) > near * FAR_FROM_WHOLE:
        return max(1, ceil(near))
    return max(1, ceil(_rounded(_rounded(Fraction(q) / 100) * n)))


def _rounded(value: Fraction) -> Fraction:
    """The value rounded to the nearest number of `LONG_DOUBLE_BITS` bits, ties to even."""
    if not value:
        return value
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - LONG_DOUBLE_BITS
    if value / Fraction(2) ** exponent >= 2**LONG_DOUBLE_BITS:
        exponent += 1
    unit = Fraction(2) ** exponent
    return round(value / unit) * unit


def fio_percentiles_ns(bins: Sequence[Bin], quantiles: Sequence[float]) -> list[int | None]:
    """Percentiles as fio prints them: the middle of the bin at fio's rank. May exceed the maximum."""
    found = percentile_bins(bins, quantiles, rank=fio_rank)
    return [None if each is None else each.middle_ns for each in found]


def pool(pools: Iterable[Pool]) -> Pool:
    """Pools together: bins added, min of min, max of max, mean weighted by n.

    A mean, min or max that one source with samples does not know is not known for all.
    """
    some = [each for each in pools if each.n]
    if not some:
        return EMPTY
    n = sum(each.n for each in some)
    means = [each.mean_ns * each.n for each in some if each.mean_ns is not None]
    mean_ns = sum(means) / n if len(means) == len(some) else None
    least, most = _all_known(p.min_ns for p in some), _all_known(p.max_ns for p in some)
    return Pool(
        n=n,
        min_ns=min(least, default=None),
        max_ns=max(most, default=None),
        mean_ns=mean_ns,
        overflow=sum(each.overflow for each in some),
        bins=merge(each.bins for each in some),
    )


def _all_known(values: Iterable[int | None]) -> list[int]:
    """The values, or none at all when one of them is not known."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return known if len(known) == len(listed) else []


def running_max(maxima: Iterable[float | None]) -> list[float | None]:
    """The maximum so far after each segment; a segment without a maximum (None) adds nothing."""

    def larger(a: float | None, b: float | None) -> float | None:
        return b if a is None else a if b is None else max(a, b)

    return list(accumulate(maxima, larger))


def exceedance_bound(n: int) -> float | None:
    """The rate of exceeding that `n` samples without one still allow, at 95 %: 3/n; None without samples."""
    return 3 / n if n else None
