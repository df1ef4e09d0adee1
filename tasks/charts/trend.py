"""PURE. One stage over many runs: a line per size, broken where runs may not be compared."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from tasks.analysis.trends import TrendRun
from tasks.analysis.wording import duration_or_beyond
from tasks.charts.look import BLUE, GREY, RED, STEP_COLOURS, Caption, data, seconds_axis, tips, titled

_COLOURS = (BLUE, *(each for each in STEP_COLOURS if each not in {BLUE, "#F0E442"}))


def trend_chart(runs: Sequence[TrendRun], stage: str, caption: Caption, answer: str) -> dict[str, Any]:
    """A chart as a Vega-Lite document: its rows are put in last, Altair would check each for seconds.

    Filled points are valid runs, hollow ones are not; a triangle lies beyond the limit of its run.
    """
    rows = [row for index, run in enumerate(runs, 1) for row in _rows(run, index, stage)]
    times = [row["t_s"] for row in rows if row["t_s"] is not None]
    x = alt.X(
        "index:Q",
        title="runs, oldest first",
        axis=alt.Axis(format="d", tickMinStep=1, grid=False),
        scale=alt.Scale(domain=[0.5, len(runs) * 1.05 + 0.5], nice=False),
    )
    y = seconds_axis("t_s", times, "end to end (log scale)")
    sizes = sorted({row["vms"] for row in rows})
    scale = alt.Scale(domain=sizes, range=[_COLOURS[i % len(_COLOURS)] for i in range(len(sizes))])
    colour = alt.Color("vms:O", title="VMs", scale=scale)
    shown = tips("run", "started", "vms", "took", "verdict", "group")
    every = alt.Chart(alt.NamedData("runs"))
    base = every.transform_filter("!datum.beyond")
    late = every.transform_filter("datum.beyond && datum.t_s !== null")
    valid, other = (base.transform_filter(f"datum.verdict {sign} 'valid'") for sign in ("===", "!=="))
    layers = [
        base.mark_line(strokeWidth=1.5).encode(x, y, color=colour, detail="line:N"),
        valid.mark_point(filled=True, size=40, opacity=1).encode(x, y, color=colour, tooltip=shown),
        other.mark_point(filled=False, size=50, opacity=1).encode(x, y, color=colour, tooltip=shown),
        late.mark_point(shape="triangle-up", filled=True, size=110, color=RED, opacity=1).encode(
            x, y, tooltip=shown
        ),
        every.transform_filter(f"datum.index === {len(runs)}")
        .mark_text(align="left", dx=8)
        .encode(x, y, text=alt.Text("vms:Q", format=",")),
        alt.Chart(data(_breaks(runs))).mark_rule(color=GREY, strokeDash=[4, 3]).encode(alt.X("index:Q")),
    ]
    chart = titled(layers, f"{stage.capitalize()}: end to end, run by run", caption, answer).to_dict()
    return {**chart, "datasets": {**chart.get("datasets", {}), "runs": rows}}


def _rows(run: TrendRun, index: int, stage: str) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "run": run.run_id,
            "started": run.started_at[:16].replace("T", " "),
            "vms": series.size,
            "t_s": run.limits[series] if value is None else value,
            "beyond": value is None,
            "took": duration_or_beyond(value, run.limits[series]),
            "verdict": run.verdict,
            "group": run.group,
            "line": f"{series.size} {run.group}",
        }
        for series, value in run.values.items()
        if series.stage == stage
    ]


def _breaks(runs: Sequence[TrendRun]) -> list[dict[str, Any]]:
    """Between neighbours that may not be compared."""
    pairs = enumerate(pairwise(runs), 1)
    return [{"index": index + 0.5} for index, (a, b) in pairs if a.group != b.group]
