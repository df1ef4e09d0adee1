"""PURE. Where the time of a median boot goes as batches grow."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from tasks.analysis.wording import human_duration, step_name
from tasks.charts.look import STEP_RAMP, Caption, data, room_for_names, tips, titled


def boot_steps_chart(gaps: Sequence[dict[str, Any]], caption: Caption, answer: str) -> alt.LayerChart:
    """Stacked horizontal bars, one per batch: the share of each step in the sum of median steps.

    `gaps` are rows of `tasks.analysis.steps.step_gaps`; a step whose median is beyond the limit is
    not drawn.
    """
    rows = [row for row in gaps if row["median_s"] is not None]
    totals = _totals(rows)
    parts = [{**_part(row), "share": row["median_s"] / (totals[row["batch"]] or 1)} for row in rows]
    names = [row["name"] for row in parts if row["batch"] == parts[0]["batch"]]
    y = alt.Y("size:O", title="VMs per batch", sort=[f"{batch:,}" for batch in sorted(totals)])
    percent = alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1])
    x = alt.X(
        "share:Q",
        title="share of a boot's median steps",
        stack="zero",
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=percent,
    )
    legend = alt.Legend(orient="bottom", title=None, symbolType="square", labelLimit=300)
    colour = alt.Color("name:N", scale=alt.Scale(domain=names, range=ramp(len(names))), legend=legend)
    bars = alt.Chart(data(parts)).mark_bar(stroke="white", strokeWidth=1)
    bars = bars.encode(
        y=y,
        x=x,
        color=colour,
        order=alt.Order("order:Q"),
        tooltip=tips("size", "step", "median_s", "n_ok", "n"),
    )
    labels = {batch: human_duration(total) for batch, total in totals.items()}
    sums = [{"size": f"{batch:,}", "share": 1, "label": label} for batch, label in labels.items()]
    text = (
        alt.Chart(data(sums))
        .mark_text(align="left", dx=5)
        .encode(y=y, x=alt.X("share:Q"), text=alt.Text("label:N"))
    )
    room = room_for_names(list(labels.values()))
    return titled([bars, text], "Boot: what each step adds", caption, answer, padding=room)


def ramp(n: int) -> list[str]:
    """`n` colours, dark to light, as far apart as the ramp allows."""
    last = len(STEP_RAMP) - 1
    return [STEP_RAMP[round(i * last / max(1, n - 1)) if n <= last else i % (last + 1)] for i in range(n)]


def _totals(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    totals: dict[int, float] = {}
    for row in rows:
        totals[row["batch"]] = totals.get(row["batch"], 0.0) + row["median_s"]
    return totals


def _part(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "size": f"{row['batch']:,}", "name": f"{row['order'] + 1} {step_name(row['step'])}"}
