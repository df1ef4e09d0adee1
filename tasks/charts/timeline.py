"""PURE. The whole run on one axis: batches as blocks, disturbances as marks."""

from datetime import datetime, timedelta
from typing import Any

import altair as alt
import polars as pl

from tasks.charts.look import BLUE, ORANGE, RED, Caption, data, tips, titled

_ROWS = ["deploy", "delete", "boot", "stop", "disturbances"]
_COLOURS = {"valid": BLUE, "degraded": ORANGE, "invalid": RED}
_TOOLTIP = ("stage", "batch", "repeat", "start", "end", "verdict", "reasons")
_SIGNS = {"valid": "", "degraded": "△", "invalid": "✕"}


def timeline_chart(
    batches: pl.DataFrame, observer: pl.DataFrame, caption: Caption, answer: str
) -> alt.LayerChart | None:
    """Blocks from each release to its end (or its limit) in UTC; None when no release time is stored."""
    blocks = _blocks(batches)
    if not blocks:
        return None
    marks = _disturbances(blocks, observer)
    present = {block["row"] for block in blocks} | ({"disturbances"} if marks else set())
    rows = [row for row in _ROWS if row in present]
    axis = alt.Axis(labelOverlap="greedy", format=_clock_format(blocks), tickCount=8)
    x = alt.X("start:T", title="cluster time (UTC)", scale=alt.Scale(type="utc"), axis=axis)
    y = alt.Y("row:N", title=None, sort=rows, scale=alt.Scale(domain=rows))
    base = alt.Chart(data(blocks)).encode(y=y)
    bars = base.mark_bar(height=22, stroke="white", strokeWidth=0.5)
    dots = alt.Chart(data(marks)).mark_point(shape="diamond", color=RED, filled=True, size=50)
    layers = [
        bars.encode(x=x, x2=alt.X2("end:T"), color=_colour(), tooltip=tips(*_TOOLTIP)),
        base.mark_text(dy=-18).encode(x=alt.X("middle:T"), text=alt.Text("label:N")),
        *([dots.encode(x=x, y=y, tooltip=tips("start", "what"))] if marks else []),
    ]
    return titled(layers, "The run", caption, answer, height=40 + 52 * len(rows))


def _colour() -> alt.Color:
    scale = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))
    return alt.Color("verdict:N", scale=scale, legend=None)


def _clock_format(blocks: list[dict[str, Any]]) -> str:
    """Hours and minutes; with seconds in a run of minutes, with the day in one of days."""
    span_s = _span_s(blocks)
    return "%H:%M:%S" if span_s < 600 else "%H:%M" if span_s < 86400 else "%b %d %H:%M"


def _span_s(blocks: list[dict[str, Any]]) -> float:
    first, last = blocks[0]["start"], max(block["end"] for block in blocks)
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def _blocks(batches: pl.DataFrame) -> list[dict[str, Any]]:
    """Batches in the order of release; one that was not complete lasts until its limit."""
    rows = batches.filter(pl.col("released_at").is_not_null()).sort("released_at")
    rows = rows.with_columns(lasted_s=pl.coalesce("end_to_end_s", "limit_s", 0.0))
    wide = pl.col("lasted_s") > 0.07 * pl.col("lasted_s").sum()
    return [_block(row, row["wide"]) for row in rows.with_columns(wide=wide).to_dicts()]


def _block(row: dict[str, Any], wide: bool) -> dict[str, Any]:
    start, seconds, sign = row["released_at"], row["lasted_s"], _SIGNS[row["verdict"]]
    return {
        "row": row["stage"],
        **{name: row[name] for name in ("stage", "batch", "repeat", "verdict")},
        "reasons": "; ".join(row["reasons"] or []),
        "start": start.isoformat(),
        "middle": (start + timedelta(seconds=seconds / 2)).isoformat(),
        "end": (start + timedelta(seconds=seconds)).isoformat(),
        "label": f"{row['batch']:,} {sign}".strip() if wide else sign,
    }


def _disturbances(blocks: list[dict[str, Any]], observer: pl.DataFrame) -> list[dict[str, Any]]:
    """Marks for refused requests and re-listed watches, summed over a 200th of the run each."""
    width = max(1, int(_span_s(blocks) / 200))
    keys = ("stage", "batch", "repeat", pl.col("second") // width * width)
    seen = observer.filter((pl.col("http_429") > 0) | (pl.col("relists") > 0))
    marks = seen.group_by(*keys, maintain_order=True).agg(pl.col("http_429", "relists").sum())
    starts = {(block["stage"], block["batch"], block["repeat"]): block["start"] for block in blocks}
    return [
        {"row": "disturbances", "start": _after(starts[key], row["second"]), "what": _what(row)}
        for row in marks.to_dicts()
        for key in [(row["stage"], row["batch"], row["repeat"])]
        if key in starts
    ]


def _after(start: str, second: int) -> str:
    return (datetime.fromisoformat(start) + timedelta(seconds=second)).isoformat()


def _what(row: dict[str, Any]) -> str:
    counts = {"requests answered 429": row["http_429"], "watches listed again": row["relists"]}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
