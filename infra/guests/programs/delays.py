"""How long a virtual guest's thread or frame waits: a mixture of mechanisms, drawn as whole histograms.

A latency is the sum of independent parts: the ordinary path (log-normal), what a neighbour's use
of caches and memory adds to few samples (exponential), and what is left of a stall of the whole
CPU to the few samples that fall into one. Days of samples are drawn bin by bin, never one by one,
so a maximum is the highest bin that happened to be hit: it grows with the number of samples.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, log, sqrt
from statistics import NormalDist

from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.realtime import Latency

STEP_US = 0.25
"""Resolution of the sum; results are bins of whole microseconds, as the tools count them."""
LONGEST_US = 2000
"""What is longer counts as this long: twice where the tools' histograms end."""
IMPOSSIBLE = 1e-18
FEW = 40.0
"""Below this mean a count is drawn exactly (Poisson), above by its normal limit."""
NEVER = 1e-9
"""A bin that is hit less often than this per drawing is left empty."""

_NORMAL = NormalDist()
_STEPS = round(LONGEST_US / STEP_US)
Shares = Sequence[float]
"""Probability of each step of `STEP_US`, from 0."""
Histogram = dict[int, int]
"""Samples by whole microsecond."""


def lognormal(median_us: float, spread: float) -> Shares:
    """Probability of each step."""
    below = [_below(step * STEP_US, median_us, spread) for step in range(_STEPS + 1)]
    return [*(high - low for low, high in pairwise(below[:-1])), 1.0 - below[-2]]


def _below(value_us: float, median_us: float, spread: float) -> float:
    return _NORMAL.cdf((log(value_us) - log(median_us)) / spread) if value_us > 0 else 0.0


def seldom(share: float, delay: Shares) -> Shares:
    """A delay that a share of the samples meets; the others wait for nothing."""
    met = [share * each for each in delay]
    return [1.0 - share + met[0], *met[1:]]


def exponential(mean_us: float) -> Shares:
    """Probability of each step."""
    return [exp(-i * STEP_US / mean_us) - exp(-(i + 1) * STEP_US / mean_us) for i in range(_STEPS)]


def rest_of_stall(model: Latency) -> Shares:
    """What is left of a stall to somebody who comes at any moment of it: density P(length > x) / mean."""
    over = [1.0 - _below((i + 0.5) * STEP_US, model.stall_us, model.stall_spread) for i in range(_STEPS)]
    whole = sum(over)
    return [each / whole for each in over]


def summed(first: Shares, second: Shares) -> Shares:
    """The distribution of the sum of two independent delays."""
    found = [0.0] * _STEPS
    parts = [(j, q) for j, q in enumerate(second) if q > IMPOSSIBLE]
    for i, p in enumerate(first):
        if p > IMPOSSIBLE:
            for j, q in parts:
                found[min(i + j, _STEPS - 1)] += p * q
    return found


def noise(model: Latency, *, noisy: bool) -> Shares:
    """What neighbours add; without load beside the guest they add nothing."""
    return seldom(model.noise_share if noisy else 0.0, exponential(model.noise_us))


def by_microsecond(shares: Shares) -> list[float]:
    """The same by whole microsecond, as the tools cut it off, up to the last one that can come."""
    per_us = round(1 / STEP_US)
    whole = [sum(shares[i : i + per_us]) for i in range(0, _STEPS, per_us)]
    last = max(i for i, share in enumerate(whole) if share > IMPOSSIBLE)
    return whole[: last + 1]


def drawn(draws: Draws, name: str, samples: int, shares: Sequence[float]) -> Histogram:
    """The histogram of so many samples; the most probable bin takes what the others leave.

    `name` alone decides the outcome. Counts are whole numbers, so the last bit in which C libraries
    differ does not show.
    """
    fullest = max(range(len(shares)), key=shares.__getitem__)
    found: Histogram = {}
    for value, share in enumerate(shares):
        mean = samples * share
        if value != fullest and mean > NEVER:
            count = count_of(mean, draws.uniform("latency", f"{name} {value}"))
            if count:
                found[value] = count
    rest = samples - sum(found.values())
    if rest > 0:
        found[fullest] = rest
    return dict(sorted(found.items()))


def count_of(mean: float, uniform: float) -> int:
    """A Poisson count by its quantile."""
    if mean > FEW:
        return max(0, round(mean + sqrt(mean) * _NORMAL.inv_cdf(uniform)))
    count, probability = 0, exp(-mean)
    reached = probability
    while uniform > reached and probability > 0.0:
        count += 1
        probability *= mean / count
        reached += probability
    return count


def merged(histograms: Sequence[Mapping[int, int]]) -> Histogram:
    """The sum of histograms."""
    found: Histogram = {}
    for each in histograms:
        for value, count in each.items():
            found[value] = found.get(value, 0) + count
    return dict(sorted(found.items()))
