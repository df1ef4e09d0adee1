"""PURE. IO against the number of VMs: IOPS, throughput and latency of each cell beside its baseline.

A line joins neighbours of one cell that were limited by the same thing. A cell that reached its cap and
one that did not are never joined: their latencies have different causes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from tasks.charts.look import BLUE, GREEN, GREY, ORANGE, RED, Caption, data, decade_ticks, tips, titled

COLOURS = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "#444444", "#999999")
SHAPES = {"at the cap": "circle", "saturated": "triangle-down", "baseline": "diamond"}


class Quantity(NamedTuple):
    """One column of the rows and how its axis reads; `only` limits the chart to a phase."""

    column: str
    title: str
    axis: str
    format: str
    only: str = ""


IOPS = Quantity("iops", "IOPS of all VMs", "IOPS of all VMs (log scale)", "~s")
THROUGHPUT = Quantity("gib_per_s", "Throughput of all VMs", "GiB/s of all VMs", "~r", "load")
P50 = Quantity("p50_us", "Latency p50, baseline beside load", "p50, microseconds (log scale)", "~r")
P99 = Quantity("p99_us", "Latency p99, baseline beside load", "p99, microseconds (log scale)", "~s")

_TIP = ("cell", "phase", "kind", "vms", "iops", "gib_per_s", "p50_us", "p95_us", "p99_us", "verdict")


def io_chart(
    rows: Sequence[dict[str, Any]], quantity: Quantity, caption: Caption, answer: str
) -> alt.LayerChart:
    """One quantity of every cell against the number of VMs; rows are `analysis.io_answers.segments`."""
    shown = [row for row in rows if quantity.only in ("", row["phase"]) and row[quantity.column] is not None]
    x = _sizes(sorted({row["vms"] for row in shown}))
    y = _axis(shown, quantity)
    cells = sorted({row["cell"] for row in shown})
    colour = alt.Color(
        "cell:N",
        scale=alt.Scale(domain=cells, range=[COLOURS[i % len(COLOURS)] for i in range(len(cells))]),
        legend=alt.Legend(orient="bottom", title=None),
    )
    shape = alt.Shape(
        "kind:N",
        scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())),
        legend=alt.Legend(orient="bottom", title=None),
    )
    lines = [
        _lines(shown, phase, dash).encode(x, y, colour, detail="line:N") for phase, dash in _DASHES.items()
    ]
    points = alt.Chart(data(shown)).mark_point(filled=True, size=70, opacity=1)
    layers = [*_cap(shown, quantity), *lines, points.encode(x, y, colour, shape, tooltip=tips(*_TIP))]
    return titled(layers, quantity.title, caption, answer)


_DASHES = {"load": [1, 0], "baseline": [4, 3]}


def _lines(rows: Sequence[dict[str, Any]], phase: str, dash: list[int]) -> alt.Chart:
    mine = [row for row in rows if row["phase"] == phase]
    chart: alt.Chart = alt.Chart(data(mine)).mark_line(strokeWidth=1.5, strokeDash=dash)
    return chart


def _sizes(sizes: Sequence[int]) -> alt.X:
    scale = alt.Scale(type="log", domain=[min(sizes) / 1.3, max(sizes) * 1.3], nice=False)
    axis = alt.Axis(values=list(sizes), format=",", grid=False, labelOverlap=False)
    return alt.X("vms:Q", title="VMs, equally many on every node (log scale)", scale=scale, axis=axis)


def _axis(rows: Sequence[dict[str, Any]], quantity: Quantity) -> alt.Y:
    values = [row[quantity.column] for row in rows]
    axis = alt.Axis(format=quantity.format, labelOverlap="greedy")
    if quantity is THROUGHPUT:
        top = max([*values, *(row["asked_gib_per_s"] for row in rows)]) * 1.12
        scale = alt.Scale(domain=[0, top], nice=False)
    else:
        low, high = min(values) / 1.5, max(values) * 1.5
        scale = alt.Scale(type="log", domain=[low, high], nice=False)
        axis = alt.Axis(format=quantity.format, values=decade_ticks(low, high))
    return alt.Y(f"{quantity.column}:Q", title=quantity.axis, scale=scale, axis=axis)


def _cap(rows: Sequence[dict[str, Any]], quantity: Quantity) -> list[alt.Chart]:
    """A rule at the cap, in the chart of throughput."""
    if quantity is not THROUGHPUT:
        return []
    caps = sorted({row["asked_gib_per_s"] for row in rows})
    base = alt.Chart(data([{"cap": cap, "label": f"cap {cap:g} GiB/s"} for cap in caps]))
    at = alt.Y("cap:Q")
    return [
        base.mark_rule(color=GREY, strokeDash=[5, 4]).encode(y=at),
        base.mark_text(color=GREY, align="left", dy=-7).encode(y=at, x=alt.value(4), text="label:N"),
    ]
