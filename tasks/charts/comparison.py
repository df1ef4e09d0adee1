"""PURE. Every metric of a comparison on one axis: change with its interval, thresholds as ticks."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from tasks.analysis.comparison import Comparison
from tasks.analysis.comparison_words import interval_text, share_text
from tasks.charts.look import BLUE, GREEN, GREY, ORANGE, RED, Caption, data, tips, titled

LOOKS = {
    "regression": (RED, "triangle-up"),
    "improvement": (GREEN, "triangle-down"),
    "below threshold": (ORANGE, "diamond"),
    "same": (BLUE, "circle"),
    "undecided": (GREY, "cross"),
    "beyond the limit": (RED, "square"),
}
"""Decision to colour and shape: neither carries the meaning alone."""
_ROW_PX = 34


def comparison_chart(found: Sequence[Comparison], caption: Caption, answer: str) -> alt.LayerChart | None:
    """Points with intervals, best read against the grey line of no change; None without any change."""
    rows = [_row(each) for each in found if each.change is not None]
    if not rows:
        return None
    base = alt.Chart(data(rows))
    names = [row["metric"] for row in rows]
    y = alt.Y("metric:N", title=None, sort=names)
    x = alt.X("change:Q", title="change from baseline to run, %", axis=alt.Axis(format="+"))
    layers = [
        alt.Chart(data([{"change": 0}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x),
        *(
            base.mark_tick(color=GREY, thickness=2).encode(alt.X(f"{side}:Q"), y)
            for side in ("threshold", "threshold_below")
        ),
        base.mark_rule(strokeWidth=2).encode(alt.X("low:Q"), y, x2="high:Q", color=_colour()),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            x, y, color=_colour(), shape=_shape(), tooltip=tips("metric", "said", "interval", "decision")
        ),
    ]
    height = _ROW_PX * len(rows) + 20
    return titled(layers, "Change of every metric", caption, answer, height=height)


def _row(each: Comparison) -> dict[str, Any]:
    assert each.change is not None
    return {
        "metric": each.metric.name,
        "change": each.change * 100,
        "low": each.low * 100 if each.low is not None else None,
        "high": each.high * 100 if each.high is not None else None,
        "threshold": each.threshold * 100,
        "threshold_below": -each.threshold * 100,
        "decision": each.decision,
        "said": share_text(each.change),
        "interval": interval_text(each),
    }


def _colour() -> alt.Color:
    scale = alt.Scale(domain=list(LOOKS), range=[colour for colour, _ in LOOKS.values()])
    return alt.Color("decision:N", scale=scale, title="decision")


def _shape() -> alt.Shape:
    scale = alt.Scale(domain=list(LOOKS), range=[shape for _, shape in LOOKS.values()])
    return alt.Shape("decision:N", scale=scale, title="decision")
