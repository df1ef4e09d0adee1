"""l2reflect of a virtual guest: one frame between two ends; its file at any moment of the run."""

from functools import lru_cache

from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.realtime import Latency
from infra.guests.programs.delays import (
    Histogram,
    by_microsecond,
    drawn,
    lognormal,
    merged,
    noise,
    seldom,
    summed,
)
from infra.guests.programs.tool_run import ToolRun, as_json, mean_of

ELECTION_S = 1.5
"""HELO, EHLO and the pause before the first frame."""
WARM_UP = 41
"""Rounds that are counted and have no place in the histogram."""
SLICE_S = 3600
"""The run is drawn hour by hour, so that a later file always holds an earlier one."""


def result(run: ToolRun) -> bytes:
    """The file after `run.seconds`: as `-F` names it, rewritten on USR2 and at the end."""
    width, buckets = int(run.option("-H") or 10), int(run.option("-B") or 128)
    found = rounds(run)
    shown: dict[str, int] = {}
    for value, count in found.items():
        lower = str(min(value // width, buckets - 1) * width)
        shown[lower] = shown.get(lower, 0) + count
    counted = {
        "histogram": shown,
        "count": sum(found.values()) + (WARM_UP if found else 0),
        "min": min(found, default=0),
        "max": max(found, default=0),
        "avg": int(mean_of(found)) if found else 0,
    }
    return as_json({"version": 1, "cpu": {"0": counted}})


def rounds(run: ToolRun) -> Histogram:
    """Round trips since the start by whole microsecond."""
    running_s = max(0.0, run.seconds - ELECTION_S)
    whole, rest_s = int(running_s // SLICE_S), running_s % SLICE_S
    slices = [_slice(run, number) for number in range(whole)]
    begun = {value: int(count * rest_s / SLICE_S) for value, count in _slice(run, whole).items()}
    return merged([*slices, {value: count for value, count in begun.items() if count}])


def _slice(run: ToolRun, number: int) -> Histogram:
    return _hour(run.draws, f"{run.vm} l2reflect {run.name} {number}", _round_trips(run.model, run.noisy))


@lru_cache(maxsize=1024)
def _hour(draws: Draws, name: str, shares: tuple[float, ...]) -> Histogram:
    """Kept, because every later file of the run holds it again."""
    mean_us = sum((value + 0.5) * share for value, share in enumerate(shares))
    return drawn(draws, name, int(SLICE_S * 1e6 / mean_us), shares)


@lru_cache(maxsize=8)
def _round_trips(model: Latency, noisy: bool) -> tuple[float, ...]:
    """Shares by whole microsecond; both ends poll, so a frame waits for the end of a stall of either."""
    path = summed(lognormal(model.round_trip_us, model.round_trip_spread), noise(model, noisy=noisy))
    share = min(1.0, 2 * model.stall_per_s * model.round_trip_us / 1e6)
    return tuple(by_microsecond(summed(path, seldom(share, lognormal(model.stall_us, model.stall_spread)))))
