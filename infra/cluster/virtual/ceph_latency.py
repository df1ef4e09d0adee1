"""Distributions of latency on one grid: services, waits, the slowest of several, one after the other.

The grid has 16 values for each doubling, all of them middles of bins of fio's histograms, so what a
model answers is as coarse as about 4 % and as compact as that.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PER_DOUBLING = 16
FIRST_US, DOUBLINGS = 32.0, 18
GRID_US: Floats = np.array(
    [
        FIRST_US * 2.0**octave * (1 + step / PER_DOUBLING)
        for octave in range(DOUBLINGS)
        for step in range(PER_DOUBLING)
    ]
)
"""Upper edges of the cells, us: 32 us to 8.4 s."""
_POINTS = 24
_QUANTILES: Floats = np.array([
    -2.04, -1.53, -1.26, -1.06, -0.89, -0.74, -0.61, -0.49, -0.37, -0.26, -0.16, -0.05,
    0.05, 0.16, 0.26, 0.37, 0.49, 0.61, 0.74, 0.89, 1.06, 1.26, 1.53, 2.04,
])  # fmt: skip
"""Quantiles of the normal distribution at (i + 0.5) / 24."""


@dataclass(frozen=True, slots=True)
class Station:
    """An OSD: `busy_us` of it for each request, `delay_us` beside; `parts` are (share, service in us)."""

    busy_us: float
    delay_us: float
    parts: tuple[tuple[float, float], ...]
    spread: float


@dataclass(frozen=True, slots=True)
class Front:
    """The way to the OSDs and back; `extra` are (probability, us) that may come on top, independently."""

    base_us: float
    spread: float
    extra: tuple[tuple[float, float], ...]

    @property
    def mean_us(self) -> float:
        """Mean of the way without what may come on top."""
        return self.base_us * float(np.exp(self.spread**2 / 2))


def _points(median_us: float, spread: float) -> Floats:
    return median_us * np.exp(spread * _QUANTILES)


def sojourns(station: Station, wait_us: Floats, busy: Floats) -> Floats:
    """CDF over the grid, one row per level of load: a service, after a wait with probability `busy`."""
    parts = [(share, _points(us, station.spread)) for share, us in station.parts if share > 0]
    values = np.concatenate([points for _, points in parts])
    weights = np.concatenate([np.full(_POINTS, share / _POINTS) for share, _ in parts])
    since = GRID_US[:, None] - values[None, :]
    begun = since >= 0
    rows = np.empty((len(wait_us), len(GRID_US)))
    for level, (wait, load) in enumerate(zip(wait_us, busy, strict=True)):
        tail: Floats = np.zeros_like(since)
        if wait > 0 and load > 0:
            tail = load * np.exp(-np.maximum(since, 0.0) * (load / wait))
        rows[level] = np.where(begun, 1.0 - tail, 0.0) @ weights
    return rows


def convolved(cdf: Floats, front: Front) -> Floats:
    """Probabilities over the grid's cells of what `cdf` (rows) takes, with the way there on top."""
    step = np.zeros((len(GRID_US), len(GRID_US)))
    for weight, added_us in _ways(front):
        # P(X + y <= t) is the CDF at t - y, read between two points of the grid
        at = np.interp(GRID_US - added_us, GRID_US, np.arange(float(len(GRID_US))), left=-1.0)
        known = at >= 0
        low = np.floor(np.maximum(at, 0.0)).astype(int)
        high = np.minimum(low + 1, len(GRID_US) - 1)
        part = np.maximum(at, 0.0) - low
        column = np.arange(len(GRID_US))
        np.add.at(step, (low[known], column[known]), weight * (1.0 - part[known]))
        np.add.at(step, (high[known], column[known]), weight * part[known])
    whole = cdf @ step
    whole[:, -1] = 1.0
    shares: Floats = np.maximum(np.diff(whole, axis=1, prepend=0.0), 0.0).astype(np.float64).round(12)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _ways(front: Front) -> list[tuple[float, float]]:
    """Every (probability, us) of the way, its extras on or off."""
    base = _points(front.base_us, front.spread)
    found = []
    for chosen in product((False, True), repeat=len(front.extra)):
        share, added = 1.0, 0.0
        for on, (probability, us) in zip(chosen, front.extra, strict=True):
            share *= probability if on else 1.0 - probability
            added += us if on else 0.0
        if share > 1e-6:
            found += [(share / _POINTS, float(us) + added) for us in base]
    return found


def mean_us(shares: Floats) -> Floats:
    """Mean of each row's distribution; a cell counts with its middle."""
    edges = np.concatenate([[0.0], GRID_US])
    return np.asarray(shares @ ((edges[1:] + edges[:-1]) / 2))
