"""PURE. The distribution of a step over the VMs of each batch."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from tasks.analysis.wording import beyond
from tasks.charts.look import BLUE, RED, Caption, batch_axis, data, seconds_axis, titled

_DRAWN = ("p5_s", "p50_s", "p95_s", "p99_s", "max_s")
_TOOLTIP = ["batch:Q", "n:Q", "n_censored:Q", *(f"{name}:Q" for name in _DRAWN)]


def per_vm_chart(
    rows: Sequence[dict[str, Any]], limit_s: float | None, caption: Caption, answer: str
) -> alt.LayerChart:
    """Band p5 to p95, line p50, ticks p99 and max; an arrow at the limit carries the unfinished.

    Args:
        rows: as of `tasks.analysis.distribution.distributions`, non-empty.
        limit_s: where the arrows of the unfinished stand.
        caption: world and run.
        answer: the text alternative.
    """
    seconds = [row[name] for row in rows for name in _DRAWN if row[name] is not None]
    if limit_s is not None and any(row["n_censored"] for row in rows):
        seconds.append(limit_s)
    x = batch_axis([row["batch"] for row in rows])

    def y(field: str) -> alt.Y:
        return seconds_axis(field, seconds, "time of a VM from the batch's release (log scale)")

    layers = [
        *_band(rows, limit_s, x, y("p5_s")),
        _known(rows, "p50_s").mark_line(color=BLUE, point={"filled": True, "size": 50, "color": BLUE}),
        _known(rows, "p99_s").mark_tick(opacity=1, color=BLUE, thickness=2, size=18, orient="horizontal"),
        _known(rows, "max_s").mark_tick(opacity=1, color=RED, thickness=3, size=30, orient="horizontal"),
    ]
    fields = ("p50_s", "p99_s", "max_s")
    drawn = [
        layer.encode(x, y(field), tooltip=_TOOLTIP) for layer, field in zip(layers[-3:], fields, strict=True)
    ]
    after = [*_unfinished(rows, limit_s, x, y("t_s")), _names(rows, x, y("t_s"))]
    return titled([*layers[:-3], *drawn, *after], "Per VM", caption, answer)


def _known(rows: Sequence[dict[str, Any]], field: str) -> alt.Chart:
    return alt.Chart(data([row for row in rows if row[field] is not None]))


def _band(rows: Sequence[dict[str, Any]], limit_s: float | None, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The band ends at the limit where p95 lies beyond it; a batch alone is a bar."""
    known = [{**row, "p95_s": row["p95_s"] or limit_s} for row in rows if row["p5_s"] is not None]
    base = alt.Chart(data(known))
    if len(known) == 1:
        return [base.mark_rule(color=BLUE, strokeWidth=16, opacity=0.25).encode(x=x, y=y, y2="p95_s:Q")]
    return [base.mark_area(color=BLUE, opacity=0.2).encode(x=x, y=y, y2="p95_s:Q")]


def _unfinished(rows: Sequence[dict[str, Any]], limit_s: float | None, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    late = [
        {**row, "t_s": limit_s, "label": f"{row['n_censored']:,} {beyond(limit_s)}"}
        for row in rows
        if row["n_censored"] and limit_s is not None
    ]
    base = alt.Chart(data(late))
    arrow = base.mark_point(shape="triangle-up", color=RED, filled=True, size=140, opacity=1)
    label = base.mark_text(align="right", dx=-10, fontWeight="bold")
    return [arrow.encode(x, y, tooltip=_TOOLTIP), label.encode(x, y, text="label:N")]


def _names(rows: Sequence[dict[str, Any]], x: alt.X, y: alt.Y) -> alt.Chart:
    """p50, p99 and max beside the marks of the largest batch, so that no legend is needed."""
    largest = max(rows, key=lambda row: row["batch"])
    names = {"p5_s": "p5", "p50_s": "p50", "p99_s": "p99", "max_s": "max"}
    found = [
        {"batch": largest["batch"], "t_s": largest[field], "label": name}
        for field, name in names.items()
        if largest[field] is not None
    ]
    chart: alt.Chart = alt.Chart(data(found)).mark_text(align="left", dx=18)
    return chart.encode(x, y, text="label:N")
