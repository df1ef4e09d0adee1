"""PURE. How evenly VMs are spread over nodes."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from tasks.analysis.placement import Balance
from tasks.charts.look import BLUE, GREY, HEIGHT_PX, Caption, Row, data, tips, titled


def placement_chart(balances: Sequence[tuple[int, Balance]], caption: Caption, answer: str) -> alt.LayerChart:
    """Per batch a bar from the emptiest to the fullest node, a point at the mean, ticks at the ideal."""
    rows = [
        {
            "size": f"{batch:,}",
            "min": found.min,
            "max": found.max,
            "mean": found.mean,
            "cv": found.cv,
            "ideal_low": found.vms // found.nodes,
            "ideal_high": found.vms // found.nodes + found.ideal_spread,
        }
        for batch, found in balances
    ]
    x = alt.X("size:O", title="VMs per batch", sort=None, axis=alt.Axis(labelOverlap=False))
    base = alt.Chart(data(rows)).encode(x=x, tooltip=tips(*rows[0]))
    title = "VMs per node"
    layers = [
        base.mark_bar(color=BLUE, opacity=0.5, size=18).encode(
            y=alt.Y("min:Q", title=title), y2=alt.Y2("max:Q")
        ),
        base.mark_tick(color=GREY, thickness=2, size=34, orient="horizontal").encode(y=alt.Y("ideal_low:Q")),
        base.mark_tick(color=GREY, thickness=2, size=34, orient="horizontal").encode(y=alt.Y("ideal_high:Q")),
        base.mark_point(color=BLUE, filled=True, size=60, opacity=1).encode(y=alt.Y("mean:Q")),
    ]
    return titled(layers, "VMs per node: min to max, mean, ideal", caption, answer)


def _dot_px(rows: Sequence[Row]) -> float:
    """Diameter at which the highest stack of dots does not overlap."""
    highest: int = max(row["nodes"] for row in rows)
    return min(7.0, max(2.5, 0.9 * HEIGHT_PX / highest))


def nodes_chart(placements: pl.DataFrame, caption: Caption, answer: str) -> alt.LayerChart:
    """The largest batch: one dot per node, stacked over its number of VMs."""
    largest = placements.filter(pl.col("batch") == pl.col("batch").max()).sort("vms", "node")
    rank = pl.int_range(pl.len()).over("vms") + 1
    rows = largest.select("node", "vms", "repeat", rank.alias("nodes")).to_dicts()
    tick = alt.Axis(tickMinStep=1, format="d")
    dots = alt.Chart(data(rows)).mark_circle(color=BLUE, size=_dot_px(rows) ** 2, opacity=0.9)
    dots = dots.encode(
        x=alt.X("vms:Q", title="VMs on the node", scale=alt.Scale(zero=False, padding=12), axis=tick),
        y=alt.Y("nodes:Q", title="nodes, one dot each", scale=alt.Scale(domainMin=0), axis=tick),
        tooltip=tips("node", "vms", "repeat"),
    )
    batch = largest.get_column("batch").item(0)
    return titled([dots], f"Nodes of the batch of {batch:,} VMs", caption, answer)
