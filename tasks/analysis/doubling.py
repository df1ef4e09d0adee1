"""PURE. How the time of a batch grows with its size, and where it stops being linear.

The rule of the bend, as the report states it: growth over a step from batch a to the next larger
batch b is t(b)/t(a), and linear growth is b/a (2 for a doubling, 1.875 for 3,200 to 6,000). The
curve bends in the first bracket (a, b] in which growth exceeds linear growth by more than
`TOLERANCE`, provided that no larger batch comes back: each larger batch's time per VM stays more
than `TOLERANCE` above that of a. A fixed part (start-up time that does not grow) makes growth
smaller than linear, never larger, so it neither hides nor feigns a bend. A batch that was not
complete within its limit counts with the limit, as a lower bound; growth from it is not known.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

TOLERANCE = 0.10
"""Share by which growth may exceed linear growth and still be called linear; an assumption."""


class Point(NamedTuple):
    """Time of one batch: its size, seconds end to end (None: not complete), limit in seconds."""

    n: int
    t_s: float | None
    limit_s: float | None = None


class Growth(NamedTuple):
    """Growth over one step of sizes.

    `ratio` is t(b)/t(a), None when not known; `lower_bound` says that it is at least that.
    `linear` is b/a; `excess` is ratio/linear - 1, in other words the change of the time per VM.
    """

    a: int
    b: int
    ratio: float | None
    lower_bound: bool
    linear: float

    @property
    def excess(self) -> float | None:
        """Share above (or, negative, below) linear growth."""
        return None if self.ratio is None else self.ratio / self.linear - 1


class Bracket(NamedTuple):
    """The sizes (above, up_to] between which the curve stops being linear."""

    above: int
    up_to: int


def growths(points: Sequence[Point]) -> list[Growth]:
    """Growth of each step between neighbouring sizes, smallest first; one point per size."""
    return [_growth(a, b) for a, b in pairwise(_by_size(points))]


def _by_size(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point.n)


def _growth(a: Point, b: Point) -> Growth:
    reached = _at_least(b)
    ratio = reached / a.t_s if reached is not None and a.t_s else None
    return Growth(a.n, b.n, ratio, b.t_s is None, b.n / a.n)


def _at_least(point: Point) -> float | None:
    return point.limit_s if point.t_s is None else point.t_s


def bend(points: Sequence[Point], tolerance: float = TOLERANCE) -> Bracket | None:
    """The bracket in which the curve stops being linear by the rule above; None when it does not."""
    ordered = _by_size(points)
    for index, step in enumerate(growths(ordered)):
        if step.excess is not None and step.excess > tolerance and _stays(ordered[index:], tolerance):
            return Bracket(step.a, step.b)
    return None


def _stays(points: Sequence[Point], tolerance: float) -> bool:
    first, *larger = points
    allowed = (first.t_s or 0.0) / first.n * (1 + tolerance)
    return all((_at_least(point) or 0.0) / point.n > allowed or point.t_s is None for point in larger)


def exponent(points: Sequence[Point]) -> float | None:
    """The k of t ~ n^k, least squares on logarithms of complete batches; None below two of them.

    1 is linear, smaller has a fixed part, larger grows faster than the number of VMs.
    """
    pairs = [(log(point.n), log(point.t_s)) for point in points if point.t_s]
    if len(pairs) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in pairs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread
    return float(slope)
