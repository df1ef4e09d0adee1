"""PURE. Two runs, metric by metric: the change, how sure it is, and whether it is a regression.

VirtualMachines of one batch share everything that makes them slow, so they are no independent
measurements. The unit is the batch. Batches of both runs are paired by size and repeat (the same
repeat: a first boot is compared with a first boot); each pair gives one difference of logarithms.

- With repeats: mean over the repeats of each size, then over the sizes. The interval is Student's, from
  the spread between repeats of the same size, degrees of freedom by Welch and Satterthwaite.
- With one repeat: the sizes are the units, and what differs between sizes widens the interval.
- Intervals are simultaneous: with m metrics each has confidence 1 - (1 - c)/m, so that all of them hold
  together with confidence c. None is narrower than the observers' own error bounds allow; where a bound
  is not known, nobody can say how wide the interval has to be, so there is none.

A metric got worse (`regression`) when its interval leaves out "no change" and its change is beyond the
profile's threshold. A value beyond its limit is not known, only that it is larger: it takes no part in
the change, and decides by itself only where the other run's value lies clearly below that limit.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, variance
from typing import Literal, NamedTuple

from tasks.analysis.student_t import critical_t

Decision = Literal["regression", "improvement", "below threshold", "same", "undecided", "beyond the limit"]
Family = Literal["end_to_end", "percentile", "io_rate", "io_latency", "jitter"]
Unit = tuple[int, int]
"""Size and repeat of a batch: what is paired."""
WIDEST = log(10.0)
"""An interval that goes further, to both sides of no change, says nothing."""


class Metric(NamedTuple):
    """What is compared: `deploy end to end`; `unit` is `s`, `us`, `IOPS` or `GiB/s`."""

    name: str
    family: Family
    unit: str
    higher_is_better: bool = False


class Reading(NamedTuple):
    """One batch's value, None beyond `limit` (None: not known where).

    `error` is how wide it was observed, None: not known.
    """

    value: float | None
    limit: float | None
    error: float | None


Readings = Mapping[Unit, Reading]


@dataclass(frozen=True, slots=True)
class AtSize:
    """One size: medians are not taken, values are geometric means over the repeats that both runs know.

    `change` is a share; None where a value lies beyond its limit, `at_least` is then the least (or, where
    the baseline's is the unknown one, the most) that it can be.
    """

    size: int
    pairs: int
    baseline: float | None
    run: float | None
    baseline_limit: float | None
    run_limit: float | None
    change: float | None
    bound: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of two runs; shares: 0.1 is 10 % more in the run than in the baseline.

    `units` counts what the interval rests on, `by` says what they are. `low` and `high` are None without an
    interval, and where so few batches differ so much that it would say nothing. `bounded`: the error bound
    of every value is known.
    """

    metric: Metric
    threshold: float
    change: float | None
    low: float | None
    high: float | None
    units: int
    by: Literal["repeats", "sizes"]
    sizes: Sequence[AtSize]
    bounded: bool = True

    @property
    def censored(self) -> list[AtSize]:
        """Sizes at which a value lies beyond its limit."""
        return [each for each in self.sizes if each.change is None]

    @property
    def decision(self) -> Decision:
        """What the values beyond a limit prove comes first, then what the interval says."""
        for size in self.censored:
            if (
                size.bound is not None
                and _size(size.bound) > self.threshold
                and _is_certain(size, size.bound)
            ):
                return self._named(size.bound)
        if self.change is None or self.low is None or self.high is None:
            return "beyond the limit" if self.censored else "undecided"
        if self.low <= 0 <= self.high:
            inside = max(_size(self.low), _size(self.high)) <= self.threshold
            return "same" if inside and not self.censored else "undecided"
        return self._named(self.change) if _size(self.change) > self.threshold else "below threshold"

    def _named(self, change: float) -> Decision:
        return "improvement" if (change > 0) == self.metric.higher_is_better else "regression"


class Rules(NamedTuple):
    """What the profile states: confidence of all intervals together, threshold of each family as a share."""

    confidence: float
    thresholds: Mapping[Family, float]


class _Spread(NamedTuple):
    """Mean of log ratios, its standard error (None: not known), degrees of freedom (0: no interval)."""

    mean: float
    error: float | None
    df: float
    units: int
    by: Literal["repeats", "sizes"]

    @property
    def is_interval(self) -> bool:
        """Whether it says how sure the mean is."""
        return self.df > 0 and self.error is not None


def _size(change: float) -> float:
    """How large a change is, the same seen from either run: -1/11 is as large as +1/10."""
    return max(change, 1 / (1 + change) - 1) if change > -1 else float("inf")


def compare(
    baseline: Mapping[Metric, Readings], run: Mapping[Metric, Readings], rules: Rules
) -> list[Comparison]:
    """Every metric that both runs have, in the baseline's order; pairs are what both measured."""
    paired = {
        metric: sorted(set(baseline[metric]) & set(run[metric])) for metric in baseline if metric in run
    }
    spreads = {
        metric: _spread(units, baseline[metric], run[metric]) for metric, units in paired.items() if units
    }
    tested = max(1, sum(spread is not None and spread.is_interval for spread in spreads.values()))
    each = 1 - (1 - rules.confidence) / tested
    return [
        _comparison(metric, spread, _at_sizes(paired[metric], baseline[metric], run[metric]), (rules, each))
        for metric, spread in spreads.items()
    ]


def _spread(units: Sequence[Unit], baseline: Readings, run: Readings) -> _Spread | None:
    """How the log ratios of the pairs spread; None when no size has all of its pairs within the limits."""
    known = _measured(units, baseline, run)
    by_size: dict[int, list[float]] = {}
    for unit in known:
        by_size.setdefault(unit[0], []).append(_log_ratio(baseline[unit], run[unit]))
    if not by_size:
        return None
    means = [fmean(ratios) for ratios in by_size.values()]
    floor = _observation(known, baseline, run)
    if all(len(ratios) > 1 for ratios in by_size.values()):
        shares = [variance(ratios) / len(ratios) / len(by_size) ** 2 for ratios in by_size.values()]
        freedom = sum(v**2 / (len(ratios) - 1) for v, ratios in zip(shares, by_size.values(), strict=True))
        most = sum(len(ratios) - 1 for ratios in by_size.values())
        df = sum(shares) ** 2 / freedom if freedom > 0 else most
        pairs = sum(map(len, by_size.values()))
        return _Spread(fmean(means), _at_least(sqrt(sum(shares)), floor), df, pairs, "repeats")
    if len(means) < 2:
        return _Spread(means[0], _at_least(0.0, floor), 0.0, 1, "sizes")
    error = _at_least(sqrt(variance(means) / len(means)), floor)
    return _Spread(fmean(means), error, len(means) - 1, len(means), "sizes")


def _at_least(error: float, floor: float | None) -> float | None:
    return None if floor is None else max(error, floor)


def _measured(units: Sequence[Unit], baseline: Readings, run: Readings) -> list[Unit]:
    """Pairs of the sizes at which no value of either run lies beyond its limit."""
    gone = {unit[0] for unit in units if not (baseline[unit].value and run[unit].value)}
    return [unit for unit in units if unit[0] not in gone]


def _log_ratio(baseline: Reading, run: Reading) -> float:
    return log((run.value or 0.0) / (baseline.value or 0.0))


def _observation(units: Sequence[Unit], baseline: Readings, run: Readings) -> float | None:
    """The standard error by the observers' error bounds alone, each value uniform within its own.

    None where a bound is not known: it is no 0.
    """
    of_size = Counter(size for size, _ in units)
    weights = {size: 1 / count / len(of_size) for size, count in of_size.items()}
    readings = [(unit[0], side[unit]) for unit in units for side in (baseline, run)]
    shares = [
        weights[size] * each.error / each.value
        for size, each in readings
        if each.value and each.error is not None
    ]
    return sqrt(sum(share**2 for share in shares) / 12) if len(shares) == len(readings) else None


def _at_sizes(units: Sequence[Unit], baseline: Readings, run: Readings) -> list[AtSize]:
    sizes = sorted({size for size, _ in units})
    return [_at_size(size, [unit for unit in units if unit[0] == size], baseline, run) for size in sizes]


def _at_size(size: int, units: Sequence[Unit], baseline: Readings, run: Readings) -> AtSize:
    before, now = [baseline[unit] for unit in units], [run[unit] for unit in units]
    old, new = _mean(before), _mean(now)
    limits = [max((each.limit for each in side if each.limit), default=None) for side in (before, now)]
    change = None if not old or not new else new / old - 1
    return AtSize(size, len(units), old, new, limits[0], limits[1], change, _bound(before, now))


def _mean(readings: Sequence[Reading]) -> float | None:
    """Geometric mean; None when a value lies beyond its limit (or is zero: no ratio can be formed)."""
    values = [reading.value for reading in readings if reading.value]
    return exp(fmean(map(log, values))) if len(values) == len(readings) else None


def _bound(before: Sequence[Reading], now: Sequence[Reading]) -> float | None:
    """The least change if only the run's values are beyond limits, the most if only the baseline's are.

    None when nothing is beyond a limit, both are, or the limit is not known.
    """
    beyond_before, beyond_now = (any(not each.value for each in side) for side in (before, now))
    if beyond_before == beyond_now:
        return None
    ends = [_mean([Reading(each.value or each.limit, None, None) for each in side]) for side in (before, now)]
    return None if ends[0] is None or ends[1] is None else ends[1] / ends[0] - 1


def _comparison(
    metric: Metric, spread: _Spread | None, sizes: Sequence[AtSize], judged: tuple[Rules, float]
) -> Comparison:
    rules, confidence = judged
    change = low = high = None
    if spread is not None:
        change = exp(spread.mean) - 1
    if spread is not None and (reach := _reach(spread, confidence)) is not None:
        low, high = exp(spread.mean - reach) - 1, exp(spread.mean + reach) - 1
    return Comparison(
        metric=metric,
        threshold=rules.thresholds[metric.family],
        change=change,
        low=low,
        high=high,
        units=spread.units if spread else 0,
        by=spread.by if spread else "sizes",
        sizes=sizes,
        bounded=spread is None or spread.error is not None,
    )


def _reach(spread: _Spread, confidence: float) -> float | None:
    """Half the interval's width, as a logarithm; None when it has none, or one that says nothing."""
    if spread.error is None or spread.df <= 0:
        return None
    reach = spread.error * critical_t(confidence, spread.df)
    return None if reach > max(WIDEST, abs(spread.mean)) else reach


def _is_certain(size: AtSize, bound: float) -> bool:
    """A bound says something only in its own direction: at least more, or at most less."""
    return (bound > 0) == (size.run is None)
