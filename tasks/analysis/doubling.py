"""PURE. How the time of a batch grows with its size, and where it stops being linear.

The rule of the bend, as the report states it: growth over a step from batch a to the next larger
batch b is t(b)/t(a), and linear growth is b/a (2 for a doubling, 1.875 for 3,200 to 6,000). The
curve bends in the first bracket (a, b] in which growth exceeds linear growth by more than
`TOLERANCE`, provided that no larger batch comes back: each larger batch's time per VM stays more
than `TOLERANCE` above that of a. A fixed part (start-up time that does not grow) makes growth
smaller than linear, never larger, so it neither hides nor feigns a bend. A batch that was not
complete within its limit counts with the limit, as a lower bound; growth from it is not known.

A batch's time was observed within its error bound: it lies in [t - error, t], and anywhere since the
release where the bound is not known. A step is on one side of the rule only if all of that is; a step
that is on both is too small to tell, and neither "linear" nor "bends" is said of it.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, log
from typing import Literal, NamedTuple

TOLERANCE = 0.10
"""Share by which growth may exceed linear growth and still be called linear; an assumption."""


class Point(NamedTuple):
    """Time of one batch: its size, seconds end to end (None: not complete), limit and error bound in seconds.

    `error_s` None: how wide the time was observed is not known.
    """

    n: int
    t_s: float | None
    limit_s: float | None = None
    error_s: float | None = 0.0


class Growth(NamedTuple):
    """Growth over one step of sizes.

    `ratio` is t(b)/t(a), None when not known; `lower_bound` says that it is at least that. `least` and
    `most` are what the error bounds of both times allow. `linear` is b/a; `excess` is ratio/linear - 1,
    in other words the change of the time per VM.
    """

    a: int
    b: int
    ratio: float | None
    lower_bound: bool
    linear: float
    least: float = 0.0
    most: float = inf

    @property
    def excess(self) -> float | None:
        """Share above (or, negative, below) linear growth."""
        return None if self.ratio is None else self.ratio / self.linear - 1

    def side(self, tolerance: float = TOLERANCE) -> Literal["within", "above"] | None:
        """The side of the rule on which the step is whatever its error bounds; None: they allow both."""
        allowed = self.linear * (1 + tolerance)
        return "within" if self.most <= allowed else "above" if self.least > allowed else None


class Bracket(NamedTuple):
    """The sizes (above, up_to] between which the curve stops being linear."""

    above: int
    up_to: int


def growths(points: Sequence[Point]) -> list[Growth]:
    """Growth of each step between neighbouring sizes, smallest first; one point per size."""
    return [growth(a, b) for a, b in pairwise(_by_size(points))]


def _by_size(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point.n)


def growth(a: Point, b: Point) -> Growth:
    """Growth from one batch to another, larger one."""
    reached, earliest = _at_least(b), _earliest(a)
    if reached is None or not a.t_s:
        return Growth(a.n, b.n, None, b.t_s is None, b.n / a.n)
    least = (_earliest(b) if b.t_s is not None else reached) / a.t_s
    most = b.t_s / earliest if b.t_s is not None and earliest > 0 else inf
    return Growth(a.n, b.n, reached / a.t_s, b.t_s is None, b.n / a.n, least, most)


def _at_least(point: Point) -> float | None:
    return point.limit_s if point.t_s is None else point.t_s


def _earliest(point: Point) -> float:
    """The earliest end that a batch's error bound allows: its release, where the bound is not known."""
    return 0.0 if point.t_s is None or point.error_s is None else max(0.0, point.t_s - point.error_s)


def bend(points: Sequence[Point], tolerance: float = TOLERANCE) -> Bracket | None:
    """The bracket in which the curve stops being linear by the rule above; None when it does not."""
    ordered = _by_size(points)
    for index, step in enumerate(growths(ordered)):
        if step.side(tolerance) == "above" and _stays(ordered[index:], tolerance):
            return Bracket(step.a, step.b)
    return None


def _stays(points: Sequence[Point], tolerance: float) -> bool:
    first, *larger = points
    return all(point.t_s is None or growth(first, point).side(tolerance) == "above" for point in larger)


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
