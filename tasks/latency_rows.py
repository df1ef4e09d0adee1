"""PURE. From what the latency tools wrote to rows of `latency_runs` and `latency_histograms`.

A row is one CPU of one VM in one segment. Its coverage is the share of the time since the segment
before that was measured; what a tool did not see in between is said, not hidden.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.analysis.histograms import Histogram
from tasks.latency_plan import L2_BUCKET_US, L2_BUCKETS, ToolPlan
from tasks.tool_output.cyclictest import parse_cyclictest
from tasks.tool_output.jitterdebugger import parse_jitterdebugger
from tasks.tool_output.l2reflect import L2ReflectRun, parse_l2reflect
from tasks.tool_output.oslat import parse_oslat
from tasks.tool_output.threads import ThreadLatency

US = 1000.0
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """What one CPU measured in one segment; `measured_s` of `elapsed_s` seconds, None: not known."""

    cpu: int
    n: int
    min_ns: int | None
    max_ns: int | None
    mean_ns: float | None
    overflow: int
    bins: Histogram
    measured_s: float
    elapsed_s: float

    @property
    def coverage(self) -> float:
        """Share of the elapsed time that was measured, at most 1."""
        return min(1.0, self.measured_s / self.elapsed_s) if self.elapsed_s > 0 else 0.0


def parts_of(plan: ToolPlan, body: bytes, elapsed_s: float) -> list[Part]:
    """What a segment of a chained tool measured, per CPU.

    Raises:
        ToolOutputError: the result cannot be read or contradicts itself or the plan.
    """
    if plan.tool == "oslat":
        run = parse_oslat(body)
        return [_part(*each, elapsed_s) for each in zip(run.threads, run.durations_s, strict=True)]
    if plan.tool == "cyclictest":
        threads = parse_cyclictest(body).threads
    else:
        threads = parse_jitterdebugger(body, plan.cpus).threads
    return [_part(each, each.n * plan.interval_us / 1e6, elapsed_s) for each in threads]


def _part(thread: ThreadLatency, measured_s: float, elapsed_s: float) -> Part:
    cpu = thread.thread if thread.cpu is None else thread.cpu
    return Part(
        cpu=cpu,
        n=thread.n,
        min_ns=thread.min_ns,
        max_ns=thread.max_ns,
        mean_ns=thread.mean_ns,
        overflow=thread.overflow or 0,
        bins=thread.bins or (),
        measured_s=measured_s,
        elapsed_s=elapsed_s,
    )


def reflected(body: bytes) -> L2ReflectRun:
    """l2reflect's file with the buckets that were asked for; ToolOutputError."""
    return parse_l2reflect(body, L2_BUCKET_US, L2_BUCKETS)


def since(before: L2ReflectRun | None, now: L2ReflectRun, cpu: int, elapsed_s: float) -> Part:
    """What one process measured between two copies of its file: counts are differences.

    Its buckets are whole microseconds, so the highest one that grew is the maximum of the segment; of an
    overflow only the process's own maximum is known, and only when it rose.
    """
    old = before.bins if before else ()
    grown = _difference(now.bins, old)
    overflow = now.overflow - (before.overflow if before else 0)
    n = sum(each.count for each in grown) + overflow
    in_bins = sum(each.count for each in grown)
    middle_ns = sum((each.lower_ns + each.upper_ns) / 2 * each.count for each in grown)
    rose = before is None or (now.max_ns or 0) > (before.max_ns or 0)
    top = grown[-1].lower_ns if grown else None
    return Part(
        cpu=cpu,
        n=n,
        min_ns=grown[0].lower_ns if grown else None,
        max_ns=(now.max_ns if rose else None) if overflow else top,
        mean_ns=middle_ns / in_bins if in_bins and not overflow else None,
        overflow=overflow,
        bins=grown,
        measured_s=sum(each.upper_ns * each.count for each in grown) / 1e9,
        elapsed_s=elapsed_s,
    )


def _difference(now: Histogram, old: Histogram) -> Histogram:
    counts = {each.lower_ns: each.count for each in old}
    grown = (each._replace(count=each.count - counts.get(each.lower_ns, 0)) for each in now)
    return tuple(each for each in grown if each.count)


def run_rows(plan: ToolPlan, vm: str, segment: int, parts: Sequence[Part], reason: str = "") -> list[Row]:
    """Rows of `latency_runs`; a CPU of which nothing is known has a row of nulls that says why."""
    keys = {"tool": plan.tool, "vm": vm, "segment": segment}
    if not parts:
        return [{**keys, "cpu": cpu, "state": "failed", "reason": reason} for cpu in plan.cpus]
    return [{**keys, **_figures(part), "state": "ok", "reason": reason or None} for part in parts]


def _figures(part: Part) -> Row:
    return {
        "cpu": part.cpu,
        "duration_s": part.elapsed_s,
        "samples": part.n,
        "min_us": _us(part.min_ns),
        "mean_us": _us(part.mean_ns),
        "max_us": _us(part.max_ns),
        "overflow": part.overflow,
        "coverage": part.coverage,
    }


def _us(ns: float | None) -> float | None:
    return None if ns is None else ns / US


def histogram_rows(plan: ToolPlan, vm: str, segment: int, parts: Iterable[Part]) -> list[Row]:
    """Rows of `latency_histograms`."""
    keys = {"tool": plan.tool, "vm": vm, "segment": segment}
    return [
        {**keys, "cpu": part.cpu, "lower_ns": lower_ns, "upper_ns": upper_ns, "count": count}
        for part in parts
        for lower_ns, upper_ns, count in part.bins
    ]


def headline(rows: Sequence[Row]) -> Row:
    """Of some rows: samples, longest latency, least coverage, how many rows are not ok."""
    maxima = [row["max_us"] for row in rows if row.get("max_us") is not None]
    coverages = [row["coverage"] for row in rows if row.get("coverage") is not None]
    return {
        "samples": sum(row.get("samples") or 0 for row in rows),
        "max_us": max(maxima, default=None),
        "coverage": min(coverages, default=None),
        "not_ok": sum(row["state"] != "ok" for row in rows),
    }
