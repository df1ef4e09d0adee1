"""PURE. Time of a whole batch against its size: is it linear, and where does it bend?"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import altair as alt
import polars as pl

from tasks.analysis.curves import curve, most_efficient
from tasks.analysis.doubling import Bracket, Growth, Point, bend, growths
from tasks.analysis.wording import beyond
from tasks.charts.look import BLUE, GREY, ORANGE, RED, Caption, batch_axis, data, seconds_axis, tips, titled

TITLES = {
    "deploy": "Deploy: end to end",
    "boot": "Boot storm: end to end",
    "delete": "Delete: end to end",
    "stop": "Stop: end to end",
}


def end_to_end_chart(batches: pl.DataFrame, stage: str, caption: Caption, answer: str) -> alt.LayerChart:
    """Log-log curve with error bars, the line of ideal doubling, growth of each step, and the bend."""
    points = curve(batches, stage)
    rows = batches.filter(pl.col("stage") == stage).sort("batch", "repeat")
    seconds = [*_seconds(points), *(row["t_s"] for row in _ideal(points))]
    x = batch_axis([point.n for point in points])
    y = seconds_axis("t_s", seconds, "time from release to the last VM (log scale)")
    layers = [
        *_bend_layers(bend(points), min(seconds, default=1.0), x, y),
        _line(_ideal(points), GREY, [5, 4]).encode(x=x, y=y, tooltip=alt.Tooltip("what:N", title=" ")),
        _line([{"batch": p.n, "t_s": p.t_s} for p in points if p.t_s is not None], BLUE, [1, 0]).encode(x, y),
        *_measured_layers(rows, x, y),
        *_censored_layers(rows, x, y),
        _ratios(points).encode(x, y, text=alt.Text("label:N")),
    ]
    return titled(layers, TITLES[stage], caption, answer)


def _seconds(points: Sequence[Point]) -> list[float]:
    reached = [point.t_s if point.t_s is not None else point.limit_s for point in points]
    return [seconds for seconds in reached if seconds is not None]


def _ideal(points: list[Point]) -> list[dict[str, Any]]:
    best = most_efficient(points)
    if best is None or best.t_s is None or len(points) < 2:
        return []
    what = f"linear through {best.n:,} VMs, the batch with the least time per VM"
    return [{"batch": p.n, "t_s": best.t_s * p.n / best.n, "what": what} for p in points]


def _line(rows: Sequence[dict[str, Any]], colour: str, dash: list[int]) -> alt.Chart:
    chart: alt.Chart = alt.Chart(data(rows)).mark_line(color=colour, strokeDash=dash, strokeWidth=1.5)
    return chart


def _measured_layers(rows: pl.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Points, with error bars where the bound is known; the tooltip is the row."""
    t_s, error_s = pl.col("end_to_end_s"), pl.col("end_to_end_error_s")
    columns = [*_ROW, t_s.alias("t_s"), (t_s - error_s).alias("low_s"), (t_s + error_s).alias("high_s")]
    found = rows.filter(t_s.is_not_null()).select(columns)
    bars = alt.Chart(data(found.filter(error_s.is_not_null()).to_dicts()))
    points = alt.Chart(data(found.to_dicts()))
    return [
        bars.mark_rule(color=BLUE, strokeWidth=2).encode(x=x, y=alt.Y("low_s:Q"), y2=alt.Y2("high_s:Q")),
        points.mark_point(color=BLUE, filled=True, size=60, opacity=1).encode(x, y, tooltip=tips(*_ROW)),
    ]


_ROW = [
    "batch",
    "repeat",
    "end_to_end_s",
    "end_to_end_error_s",
    "n_ok",
    "n_timeout",
    "n_failed",
    "n_lost",
    "verdict",
]


def _censored_layers(rows: pl.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Arrows at the limit for batches that were not complete within it, with the VMs that were not ok."""
    late = rows.filter(pl.col("end_to_end_s").is_null() & pl.col("limit_s").is_not_null())
    found = [
        {
            **row,
            "t_s": row["limit_s"],
            "label": f"{beyond(row['limit_s'])} ({row['n'] - row['n_ok']:,} not ok)",
        }
        for row in late.select("batch", "repeat", "n", "n_ok", "limit_s", "verdict").to_dicts()
    ]
    base = alt.Chart(data(found))
    arrow = base.mark_point(shape="triangle-up", color=RED, filled=True, size=140, opacity=1)
    label = base.mark_text(align="right", dx=-10, fontWeight="bold")
    return [
        arrow.encode(x, y, tooltip=tips("batch", "label", "verdict")),
        label.encode(x, y, text=alt.Text("label:N")),
    ]


def _ratios(points: Sequence[Point]) -> alt.Chart:
    """Growth of each step as a small label between its two points; an arrow's growth is not known."""
    times = {point.n: point.t_s if point.t_s is not None else point.limit_s for point in points}
    found = [
        {
            "batch": sqrt(step.a * step.b),
            "t_s": sqrt((times[step.a] or 1) * (times[step.b] or 1)),
            "label": label,
        }
        for step in growths(points)
        for label in [_ratio_label(step)]
        if label
    ]
    chart: alt.Chart = alt.Chart(data(found)).mark_text(align="right", dx=-7, dy=-7)
    return chart


def _ratio_label(step: Growth) -> str:
    if step.ratio is None or step.lower_bound:
        return ""
    linear = "" if step.linear == 2 else f" (linear {step.linear:.3g})"
    return f"\N{MULTIPLICATION SIGN}{step.ratio:.2f}{linear}"


def _bend_layers(bracket: Bracket | None, low_s: float, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The bracket of the bend, shaded and named from its foot upwards; nothing for a linear curve."""
    if bracket is None:
        return []
    row = {"batch": bracket.above, "up_to": bracket.up_to, "t_s": low_s, "label": "bends here"}
    row["middle"] = sqrt(bracket.above * bracket.up_to)
    base = alt.Chart(data([row]))
    shade = base.mark_rect(color=ORANGE, opacity=0.25).encode(x=x, x2=alt.X2("up_to:Q"))
    label = base.mark_text(align="left", baseline="middle", angle=270, dx=6, fontWeight="bold")
    label = label.encode(alt.X("middle:Q"), y, text=alt.Text("label:N"))
    return [shade, label]
