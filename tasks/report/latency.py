"""PURE. The sections of the latency stage: one per tool, with its histogram and its maxima over time."""

from collections.abc import Mapping

import polars as pl

from tasks.analysis.latency import (
    QUANTITIES,
    bars,
    latency_answer,
    length_s,
    maxima_over_time,
    tools_of,
    vm_rows,
)
from tasks.charts.latency import latency_histogram, latency_over_time
from tasks.charts.look import Caption
from tasks.report.section import Section
from tasks.report.tables import table

_QUESTIONS = {
    "jitterdebugger": "How late does a real-time VM wake up?",
    "cyclictest": "How late does a real-time VM wake up, by another tool?",
    "oslat": "How long is the CPU of a real-time VM taken away?",
    "l2reflect": "How long does a frame between two real-time VMs take?",
}
_CLOCKS = {
    "jitterdebugger": "the moment a thread runs after an absolute sleep, less the moment that was asked for",
    "cyclictest": "the moment a thread runs after an absolute sleep, less the moment that was asked for",
    "oslat": "the time between two turns of a busy loop; its samples are turns, not interruptions",
    "l2reflect": "one frame from sending to receiving it back, the peer's turn-around included",
}
_READ_HISTOGRAM = (
    "Each bar: how many samples had that latency, all VMs, CPUs and segments together, on a log axis. "
    "Dashed red: the longest of each VM."
)
_READ_TIME = (
    "Points: the longest latency of each segment. Steps: the longest so far. Colour and shape: the VM."
)


def latency_sections(frames: Mapping[str, pl.DataFrame], caption: Caption) -> list[Section]:
    """A section for each tool that measured."""
    return [_section(frames, tool, caption) for tool in tools_of(frames["latency_runs"])]


def _section(frames: Mapping[str, pl.DataFrame], tool: str, caption: Caption) -> Section:
    runs, histograms = frames["latency_runs"], frames["latency_histograms"]
    rows = vm_rows(runs, histograms, tool)
    answer = latency_answer(rows, tool, length_s(runs, tool))
    known = [row for row in rows if row["max_us"] is not None]
    title = f"{tool}: {QUANTITIES[tool]}"
    charts = [
        (latency_histogram(bars(histograms, tool), known, title, caption, answer), _READ_HISTOGRAM),
        (
            latency_over_time(
                maxima_over_time(runs, tool), f"{tool}: longest latency over time", caption, answer
            ),
            _READ_TIME,
        ),
    ]
    mine = runs.filter(pl.col("tool") == tool).drop("run_id", "world", "tool", "attempt", strict=False)
    tables = [
        table(f"{tool} per VM", pl.DataFrame(rows, infer_schema_length=None), "latency_runs"),
        table(f"{tool} segments", mine, "latency_runs"),
    ]
    return Section(
        f"latency-{tool}", _QUESTIONS[tool], answer, _method(tool), charts if known else [], tables
    )


def _method(tool: str) -> list[str]:
    how = (
        "One process for the whole time, its file copied at the end of each segment; a segment is the "
        "difference of two copies, the 41 rounds of warm-up left out. Coverage is at most what is said: "
        "round trips times the upper edge of their bucket."
        if tool == "l2reflect"
        else "A chain of runs in the guest, each a segment; coverage is what they measured of the time since "
        "the segment before."
    )
    return [
        f"A sample is {_CLOCKS[tool]}. Clock: the guest's CLOCK_MONOTONIC. A percentile is the upper edge of "
        "its bin.",
        how,
        "3/n: with n samples and none above x, the share of longer ones is below 3/n with a confidence of "
        "95 %, if samples are independent; it is no promise that none ever comes. Maxima of different tools "
        "are different quantities: none is subtracted from another.",
    ]
