"""PURE. One number over many runs: a line per size, broken where runs may not be compared."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from tasks.analysis.comparison_words import value_text
from tasks.analysis.trends import Kind, TrendRun
from tasks.charts.look import (
    BLUE,
    GREY,
    RED,
    STEP_COLOURS,
    Caption,
    data,
    decade_ticks,
    seconds_axis,
    tips,
    titled,
)

_COLOURS = (BLUE, *(each for each in STEP_COLOURS if each not in {BLUE, "#F0E442"}))
_LEGEND = alt.Legend(orient="bottom", labelExpr="format(datum.value, ',')")
_UNITS = {"IOPS": "IOPS of all VMs", "us": "microseconds"}


def trend_chart(runs: Sequence[TrendRun], kind: Kind, caption: Caption, answer: str) -> dict[str, Any]:
    """A chart as a Vega-Lite document: its rows are put in last, Altair would check each for seconds.

    Filled points are valid runs, hollow ones are not; a triangle lies beyond the limit of its run.
    """
    rows = [row for index, run in enumerate(runs, 1) for row in _rows(run, index, kind)]
    values = [row["value"] for row in rows if row["value"] is not None]
    x = alt.X(
        "index:Q",
        title="runs, oldest first",
        axis=alt.Axis(format="d", tickMinStep=1, grid=False),
        scale=alt.Scale(domain=[0.5, len(runs) * 1.05 + 0.5], nice=False),
    )
    y = _axis(kind, values)
    sizes = sorted({row["vms"] for row in rows})
    scale = alt.Scale(domain=sizes, range=[_COLOURS[i % len(_COLOURS)] for i in range(len(sizes))])
    colour = alt.Color("vms:O", title="VMs", scale=scale, legend=_LEGEND if any(sizes) else None)
    shown = tips("run", "started", "vms", "said", "verdict", "group")
    every = alt.Chart(alt.NamedData("runs"))
    base = every.transform_filter("!datum.beyond")
    late = every.transform_filter("datum.beyond && datum.value !== null")
    valid, other = (base.transform_filter(f"datum.verdict {sign} 'valid'") for sign in ("===", "!=="))
    layers = [
        base.mark_line(strokeWidth=1.5).encode(x, y, color=colour, detail="line:N"),
        valid.mark_point(filled=True, size=40, opacity=1).encode(x, y, color=colour, tooltip=shown),
        other.mark_point(filled=False, size=50, opacity=1).encode(x, y, color=colour, tooltip=shown),
        late.mark_point(shape="triangle-up", filled=True, size=110, color=RED, opacity=1).encode(
            x, y, tooltip=shown
        ),
        *([_names(every, len(runs)).encode(x, y)] if kind.unit == "s" else []),
        alt.Chart(data(_breaks(runs))).mark_rule(color=GREY, strokeDash=[4, 3]).encode(alt.X("index:Q")),
    ]
    title = f"{kind.title[0].upper()}{kind.title[1:]}, run by run"
    chart = titled(layers, title, caption, answer).to_dict(validate=False)
    return {**chart, "datasets": {**chart.get("datasets", {}), "runs": rows}}


def _names(every: alt.Chart, last: int) -> alt.Chart:
    """Sizes beside the latest run; io and latencies lie too close together for that."""
    latest = every.transform_filter(f"datum.index === {last}").mark_text(align="left", dx=8)
    chart: alt.Chart = latest.encode(text=alt.Text("vms:Q", format=","))
    return chart


def _axis(kind: Kind, values: Sequence[float]) -> alt.Y:
    if kind.unit == "s":
        return seconds_axis("value", values, f"{kind.what} (log scale)")
    known = [value for value in values if value > 0] or [1.0]
    if kind.stage == "latency":
        scale = alt.Scale(domain=[0, max(known) * 1.2], nice=False)
        return alt.Y("value:Q", title=_UNITS[kind.unit], scale=scale)
    low, high = min(known) / 1.5, max(known) * 1.5
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    axis = alt.Axis(format="~s", values=decade_ticks(low, high))
    return alt.Y("value:Q", title=f"{_UNITS[kind.unit]} (log scale)", scale=scale, axis=axis)


def _rows(run: TrendRun, index: int, kind: Kind) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "run": run.run_id,
            "started": run.started_at[:16].replace("T", " "),
            "vms": series.size,
            "value": run.limits[series] if value is None else value,
            "beyond": value is None,
            "said": value_text(value, run.limits[series], kind.unit),
            "verdict": run.verdict,
            "group": run.group,
            "line": f"{series.size} {run.group}",
        }
        for series, value in run.values.items()
        if series.kind == kind
    ]


def _breaks(runs: Sequence[TrendRun]) -> list[dict[str, Any]]:
    """Between neighbours that may not be compared."""
    pairs = enumerate(pairwise(runs), 1)
    return [{"index": index + 0.5} for index, (a, b) in pairs if a.group != b.group]
