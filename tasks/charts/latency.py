"""PURE. The latency tools: how often each latency came, and the longest one over time."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from tasks.charts.look import BLUE, ORANGE, RED, Caption, data, tips, titled

FLOOR = 0.7
"""Where the bars of a logarithmic axis of counts begin: below one sample."""
COLOURS = (BLUE, ORANGE)

Rows = Sequence[dict[str, Any]]


def latency_histogram(bars: Rows, maxima: Rows, title: str, caption: Caption, answer: str) -> alt.LayerChart:
    """Bars of counts on a logarithmic axis; a line at the longest latency of each VM."""
    most = max((row["count"] for row in bars), default=1)
    longest = max((row["max_us"] for row in maxima), default=1.0)
    x = alt.X(
        "lower_us:Q",
        title="latency, microseconds",
        scale=alt.Scale(domain=[0, longest * 1.12], nice=False),
    )
    count = alt.Y(
        "count:Q",
        title="samples (log scale)",
        scale=alt.Scale(type="log", domain=[FLOOR, most * 3], nice=False),
        axis=alt.Axis(format="~s", tickCount=8),
    )
    drawn = alt.Chart(data([{**row, "floor": FLOOR} for row in bars])).mark_bar(color=BLUE, opacity=0.75)
    lines = alt.Chart(data(_labelled(maxima, most)))
    at = alt.X("max_us:Q", title="latency, microseconds")
    layers = [
        drawn.encode(x, alt.X2("upper_us:Q"), count, alt.Y2("floor:Q"), tooltip=tips(*_BAR)),
        lines.mark_rule(color=RED, strokeDash=[4, 3]).encode(x=at, tooltip=tips("vm", "max_us", "samples")),
        lines.mark_text(color=RED, align="right", dx=-4, fontWeight="bold").encode(
            x=at, y=alt.Y("place:Q"), text=alt.Text("label:N")
        ),
    ]
    return titled(layers, title, caption, answer)


_BAR = ("lower_us", "upper_us", "count")


def _labelled(maxima: Rows, most: int) -> list[dict[str, Any]]:
    """A line under the other, so that close maxima can both be read."""
    return [
        {**row, "label": f"max of {row['vm']}: {row['max_us']:g} us", "place": most / 4**i}
        for i, row in enumerate(maxima)
    ]


def latency_over_time(rows: Rows, title: str, caption: Caption, answer: str) -> alt.LayerChart:
    """Points: the longest latency of each segment; steps: the longest so far; a colour and shape per VM."""
    vms = sorted({row["vm"] for row in rows})
    known = [row for row in rows if row["max_us"] is not None]
    scale = alt.Scale(domain=vms, range=[COLOURS[i % len(COLOURS)] for i in range(len(vms))])
    colour = alt.Color("vm:N", title="VM", scale=scale, legend=alt.Legend(orient="bottom"))
    top = max((row["max_us"] for row in known), default=1.0) * 1.1
    y_scale = alt.Scale(domain=[0, top], nice=False)
    last = max((row["hours"] for row in rows), default=1.0)
    x_scale = alt.Scale(domain=[0, last * 1.02], nice=False)
    x = alt.X("hours:Q", title="hours from the start", scale=x_scale)
    base = alt.Chart(data(known))
    layers = [
        base.mark_line(interpolate="step-after", strokeWidth=2).encode(
            x, alt.Y("so_far_us:Q", title="longest latency, microseconds", scale=y_scale), colour
        ),
        base.mark_point(filled=True, size=70, opacity=0.9).encode(
            x,
            alt.Y("max_us:Q", title="longest latency, microseconds", scale=y_scale),
            colour,
            shape=alt.Shape("vm:N", title="VM", scale=alt.Scale(domain=vms)),
            tooltip=tips("vm", "segment", "hours", "max_us", "so_far_us"),
        ),
    ]
    return titled(layers, title, caption, answer)
