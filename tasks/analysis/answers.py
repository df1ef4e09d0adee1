"""PURE. The study's questions answered in a sentence each, every number computed from the data.

Each function returns None when its stage has no data.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import polars as pl

from tasks.analysis.curves import curve, most_efficient
from tasks.analysis.doubling import TOLERANCE, Bracket, Growth, Point, bend, growth, growths
from tasks.analysis.placement import Balance, balance
from tasks.analysis.steps import shares
from tasks.analysis.wording import beyond, listed, percent, step_name, with_error

BALANCED_CV = 0.10
"""Largest coefficient of variation of VMs per node that the report calls balanced; an assumption."""

_DOES = {
    "deploy": "Deploying {n} VMs takes {t}",
    "boot": "A boot storm of {n} VMs takes {t}",
    "delete": "Deleting {n} VMs takes {t}",
    "stop": "Stopping {n} VMs takes {t}",
}


def end_to_end_answer(batches: pl.DataFrame, stage: str) -> str | None:
    """How long the largest batch takes, and whether time grows linearly with the number of VMs."""
    points = curve(batches, stage)
    if not points:
        return None
    largest = points[-1]
    took = with_error(largest.t_s, largest.error_s, largest.limit_s)
    first = _DOES[stage].format(n=f"{largest.n:,}", t=took)
    return f"{first}; {linearity_answer(points)}"


def linearity_answer(points: Sequence[Point]) -> str:
    """Whether a curve is linear, with the growth that says so, and which steps are too small to tell."""
    steps = [step for step in growths(points) if step.ratio is not None]
    if not steps and len(points) > 1:
        return "too few of its sizes are complete to say how it grows."
    if not steps:
        return "one size alone says nothing about how it grows."
    clear = [step for step in steps if step.side() is not None]
    if not clear:
        return f"{_cannot_tell(steps[-1])}."
    bracket = bend(points)
    said = _straight(points, clear) if bracket is None else _bent(bracket, clear)
    return f"{'; '.join([said, *_left_open(steps)])}."


def _cannot_tell(step: Growth) -> str:
    """Why nothing is said of growth: what the error bounds, or the limit, of a step allow."""
    took = f"{step.b:,} VMs take {step.least:.2f} to {step.most:.2f} times as long as {step.a:,}"
    if step.most == inf:
        took = f"{step.b:,} VMs take at least {step.least:.2f} times as long as {step.a:,}"
    if step.lower_bound:
        return f"whether that is linear is not known: {took}"
    if step.least == 0:
        took = "an error bound is not known, or as large as the time itself"
    return f"too small to tell whether that is linear: within the error bounds {took}"


def _left_open(steps: Sequence[Growth]) -> list[str]:
    """The steps of which nothing is said."""
    small = [f"{step.b:,}" for step in steps if step.side() is None and not step.lower_bound]
    late = [f"{step.b:,}" for step in steps if step.side() is None and step.lower_bound]
    said = [f"growth to {listed(small)} VMs is too small to tell within the error bounds"] if small else []
    return said + ([f"growth to {listed(late)} VMs, beyond the limit, is not known"] if late else [])


def _straight(points: Sequence[Point], steps: Sequence[Growth]) -> str:
    """A curve without a bend; `steps` are those that are not too small to tell."""
    steepest = max(steps, key=lambda step: step.excess or 0.0)
    if steepest.side() == "above":
        step = f"{steepest.b:,} VMs take {_times(steepest)} as {steepest.a:,}"
        return f"it is uneven: {step}, and no larger batch confirms a bend"
    doublings = [step.ratio for step in steps if step.linear == 2 and step.ratio is not None]
    if not doublings:
        return f"it grows no faster than linearly (at most {percent(max(steepest.excess or 0.0, 0))} above)"
    low, high = f"{min(doublings):.2f}", f"{max(doublings):.2f}"
    times = low if low == high else f"{low} to {high}"
    if min(step.least for step in steps if step.linear == 2) < 2 * (1 - TOLERANCE):
        return f"it grows no faster than linearly: a doubling of VMs takes {times} times as long"
    return _creeping(points, times)


def _creeping(points: Sequence[Point], times: str) -> str:
    """Steps that are all linear may add up to something that is not."""
    complete = [point for point in points if point.t_s is not None]
    cheapest, largest = most_efficient(points) or complete[-1], complete[-1]
    whole = growth(cheapest, largest)
    if whole.side() == "within":
        return f"it is linear: each doubling of VMs takes {times} times as long"
    each = f"each doubling takes {times} times as long"
    if whole.side() is None:
        return f"no step bends: {each}; whether it creeps is too small to tell"
    longer = f"a VM of {largest.n:,} takes {percent(whole.excess or 0.0)} longer than one of {cheapest.n:,}"
    return f"no step bends, but it creeps: {each}, and {longer}"


def _bent(bracket: Bracket, steps: Sequence[Growth]) -> str:
    step = next(step for step in steps if step.b == bracket.up_to)
    bends = f"bends between {bracket.above:,} and {bracket.up_to:,}, a step that takes {_times(step)}"
    before = [each for each in steps if each.b <= bracket.above]
    if not before:
        return f"it {bends}"
    slower = min(each.least / each.linear for each in before) < 1 - TOLERANCE
    word = "it grows no faster than linearly" if slower else "it is linear"
    return f"{word} up to {bracket.above:,} VMs and {bends}"


def _times(step: Growth) -> str:
    least = "at least " if step.lower_bound else ""
    return f"{least}{step.ratio:.2f} times as long (linear: {step.linear:.3g})"


def per_vm_answer(rows: Sequence[dict[str, Any]], step: str, limit_s: float | None) -> str | None:
    """When half, 99 % and all VMs of the largest batch had reached a step; rows as of `distributions`."""
    if not rows:
        return None
    largest = max(rows, key=lambda row: row["batch"])
    half, most, last = (
        with_error(largest[f"{name}_s"], largest.get(f"{name}_error_s"), limit_s)
        for name in ("p50", "p99", "max")
    )
    text = f"Of {largest['n']:,} VMs half are {step_name(step)} after {half}, 99 % after {most}"
    if largest["n_censored"]:
        return f"{text}; {largest['n_censored']:,} never were within {beyond(limit_s).removeprefix('> ')}."
    return f"{text}, the last after {last}."


def balances(placements: pl.DataFrame) -> list[tuple[int, Balance]]:
    """Balance of each batch size, in the order of sizes; repeats pooled as further nodes."""
    groups = placements.group_by("batch").agg("vms").sort("batch")
    found = [(batch, balance(counts)) for batch, counts in groups.iter_rows()]
    return [(batch, spread) for batch, spread in found if spread is not None]


def placement_answer(placements: pl.DataFrame) -> str | None:
    """Whether the VMs of the largest batch are spread evenly over the nodes."""
    found = balances(placements)
    if not found:
        return None
    batch, spread = found[-1]
    if spread.cv is None:
        return f"No VM of {batch:,} was placed."
    even = spread.spread <= spread.ideal_spread
    word = "as even as can be" if even else "balanced" if spread.cv <= BALANCED_CV else "not balanced"
    nodes = "1 node" if spread.nodes == 1 else f"{spread.nodes:,} nodes"
    rule = "" if even else f" (balanced: at most {BALANCED_CV:g})"
    return (
        f"{batch:,} VMs on {nodes} are {word}: {spread.min:,} to {spread.max:,} per node, "
        f"mean {spread.mean:.3g}, CV {spread.cv:.3f}{rule}."
    )


def steps_answer(gaps: Sequence[dict[str, Any]]) -> str | None:
    """The step that takes most of a median boot in the largest batch, and its share in the smallest."""
    batches = sorted({gap["batch"] for gap in gaps})
    now = shares(gaps, batches[-1]) if batches else {}
    if not now:
        return None
    step = max(now, key=lambda name: now[name])
    text = f"At {batches[-1]:,} VMs the largest part of a boot, {percent(now[step])}, is the step to"
    before = shares(gaps, batches[0]).get(step)
    if before is None or len(batches) == 1:
        return f"{text} {step_name(step)}."
    return f"{text} {step_name(step)}; at {batches[0]:,} VMs it is {percent(before)}."


def not_measured(frames: dict[str, pl.DataFrame]) -> str | None:
    """What the study answers and this run did not measure."""
    questions = {"io_cells": "IO scaling", "latency_runs": "jitter"}
    stages = {"deploy": "deploys", "boot": "boot storms"}
    seen = frames["batches"].get_column("stage").to_list() if "batches" in frames else []
    missing = [text for stage, text in stages.items() if stage not in seen]
    missing += [text for table, text in questions.items() if frames.get(table, pl.DataFrame()).is_empty()]
    return f"Not measured in this run: {listed(missing)}." if missing else None
