"""PURE. The distribution of a step over the VMs of each batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from tasks.analysis.wording import beyond
from tasks.charts.look import BLUE, RED, Caption, batch_axis, data, room_for_names, seconds_axis, tips, titled

_DRAWN = ("p5_s", "p50_s", "p95_s", "p99_s", "max_s")
_CLOSE = 1.25
"""Marks whose times differ by less than this factor share one name."""
_TOOLTIP = ("batch", "n", "n_censored", *_DRAWN)


class Distributions(NamedTuple):
    """What is drawn: a title, rows of `tasks.analysis.distribution.distributions`, the limit in seconds."""

    title: str
    rows: Sequence[dict[str, Any]]
    limit_s: float | None


def per_vm_chart(found: Distributions, caption: Caption, answer: str) -> alt.LayerChart:
    """Band p5 to p95, line p50, ticks p99 and max; an arrow at the limit carries the unfinished."""
    rows, limit_s = found.rows, found.limit_s
    seconds = [row[name] for row in rows for name in _DRAWN if row[name] is not None]
    if limit_s is not None and any(row["n_censored"] for row in rows):
        seconds.append(limit_s)
    x, names = batch_axis([row["batch"] for row in rows]), _names(rows)

    def y(field: str) -> alt.Y:
        return seconds_axis(field, seconds, "time of a VM from the batch's release (log scale)")

    layers = [
        _band(rows, limit_s, x, y("p5_s")),
        _drawn(rows, x, y("max_s")).mark_tick(
            color=RED, thickness=3, size=30, orient="horizontal", opacity=1
        ),
        _drawn(rows, x, y("p99_s")).mark_tick(
            color=BLUE, thickness=2, size=18, orient="horizontal", opacity=1
        ),
        _drawn(rows, x, y("p50_s")).mark_line(color=BLUE, point={"filled": True, "size": 50, "color": BLUE}),
        *_unfinished(rows, limit_s, x, y("t_s")),
        _drawn_names(names, x, y("t_s")),
    ]
    room = room_for_names([each["label"] for each in names])
    return titled(layers, found.title, caption, answer, padding=room)


def _drawn(rows: Sequence[dict[str, Any]], x: alt.X, y: alt.Y) -> alt.Chart:
    field = str(y.shorthand).partition(":")[0]
    chart: alt.Chart = alt.Chart(data([row for row in rows if row[field] is not None]))
    return chart.encode(x, y, tooltip=tips(*_TOOLTIP))


def _band(rows: Sequence[dict[str, Any]], limit_s: float | None, x: alt.X, y: alt.Y) -> alt.Chart:
    """The band ends at the limit where p95 lies beyond it; a batch alone is a bar."""
    known = [
        {**row, "p95_s": limit_s if row["p95_s"] is None else row["p95_s"]}
        for row in rows
        if row["p5_s"] is not None
    ]
    base: alt.Chart = alt.Chart(data(known)).encode(x=x, y=y, y2=alt.Y2("p95_s:Q"))
    if len(known) == 1:
        base = base.mark_rule(color=BLUE, strokeWidth=16, opacity=0.25)
        return base
    base = base.mark_area(color=BLUE, opacity=0.2)
    return base


def _unfinished(rows: Sequence[dict[str, Any]], limit_s: float | None, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    late = [
        {**row, "t_s": limit_s, "label": f"{row['n_censored']:,} {beyond(limit_s)}"}
        for row in rows
        if row["n_censored"] and limit_s is not None
    ]
    base = alt.Chart(data(late))
    arrow = base.mark_point(shape="triangle-up", color=RED, filled=True, size=140, opacity=1)
    label = base.mark_text(align="right", dx=-10, fontWeight="bold")
    return [arrow.encode(x, y, tooltip=tips(*_TOOLTIP)), label.encode(x, y, text=alt.Text("label:N"))]


def _names(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Names of the marks beside those of the largest batch, so that no legend is needed."""
    largest = max(rows, key=lambda row: row["batch"])
    found: list[dict[str, Any]] = []
    for name in ("p5", "p50", "p99", "max"):
        t_s = largest[f"{name}_s"]
        if found and t_s is not None and t_s < found[-1]["t_s"] * _CLOSE:
            found[-1]["label"] += f", {name}"
        elif t_s is not None:
            found.append({"batch": largest["batch"], "t_s": t_s, "label": name})
    return found


def _drawn_names(names: Sequence[dict[str, Any]], x: alt.X, y: alt.Y) -> alt.Chart:
    chart: alt.Chart = alt.Chart(data(names)).mark_text(align="left", dx=18)
    return chart.encode(x, y, text=alt.Text("label:N"))
