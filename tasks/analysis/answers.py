"""PURE. The study's questions answered in a sentence each, every number computed from the data.

Each function returns None when its stage has no data.
"""

from collections.abc import Sequence
from typing import Any

import polars as pl

from tasks.analysis.curves import curve
from tasks.analysis.doubling import TOLERANCE, Bracket, Growth, Point, bend, growths
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
    rows = batches.filter((pl.col("stage") == stage) & (pl.col("batch") == largest.n))
    error_s = rows.get_column("end_to_end_error_s").max()
    took = with_error(largest.t_s, error_s if isinstance(error_s, float) else None, largest.limit_s)
    first = _DOES[stage].format(n=f"{largest.n:,}", t=took)
    return f"{first}; {linearity_answer(points)}"


def linearity_answer(points: Sequence[Point]) -> str:
    """Whether a curve is linear, with the growth that says so."""
    steps = [step for step in growths(points) if step.ratio is not None]
    if not steps and len(points) > 1:
        return "too few of its sizes are complete to say how it grows."
    if not steps:
        return "one size alone says nothing about how it grows."
    bracket = bend(points)
    if bracket is not None:
        return _bent(bracket, steps)
    doublings = [step.ratio for step in steps if step.linear == 2 and step.ratio is not None]
    if not doublings:
        excess = max(step.excess or 0.0 for step in steps)
        return f"it grows no faster than linearly (at most {percent(max(excess, 0))} above)."
    low, high = f"{min(doublings):.2f}", f"{max(doublings):.2f}"
    times = low if low == high else f"{low} to {high}"
    if max(doublings) > 2 * (1 + TOLERANCE):
        return f"it is uneven: a doubling takes {times} times as long, and no larger batch confirms a bend."
    if min(doublings) < 2 * (1 - TOLERANCE):
        return f"it grows no faster than linearly: a doubling of VMs takes {times} times as long."
    grown = _time_per_vm(steps) - 1
    if grown > TOLERANCE:
        return (
            f"no step bends, but it creeps: each doubling takes {times} times as long, and a VM of the "
            f"largest batch {percent(grown)} longer than one of the cheapest."
        )
    return f"it is linear: each doubling of VMs takes {times} times as long."


def _time_per_vm(steps: Sequence[Growth]) -> float:
    """How much longer a VM of the largest batch takes than one of the batch where it is quickest."""
    last = cheapest = 1.0
    for step in steps:
        last *= 1 + (step.excess or 0.0)
        cheapest = min(cheapest, last)
    return last / cheapest


def _bent(bracket: Bracket, steps: Sequence[Growth]) -> str:
    step = next(step for step in steps if step.b == bracket.up_to)
    least = "at least " if step.lower_bound else ""
    before = [each.excess for each in steps if each.b <= bracket.above and each.excess is not None]
    slower = bool(before) and min(before) < -TOLERANCE
    word = "it grows no faster than linearly" if slower else "it is linear"
    return (
        f"{word} up to {bracket.above:,} VMs and bends between {bracket.above:,} and "
        f"{bracket.up_to:,}, a step that takes {least}{step.ratio:.2f} times as long "
        f"(linear: {step.linear:.3g})."
    )


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
