"""PURE. The whole run on one axis: batches as blocks, disturbances as marks."""

from datetime import datetime, timedelta
from typing import Any

import altair as alt
import polars as pl

from tasks.charts.look import BLUE, ORANGE, RED, Caption, data, titled

_ROWS = ["deploy", "delete", "boot", "stop", "disturbances"]
_COLOURS = {"valid": BLUE, "degraded": ORANGE, "invalid": RED}
_SIGNS = {"valid": "", "degraded": "△", "invalid": "✕"}


def timeline_chart(
    batches: pl.DataFrame, observer: pl.DataFrame, caption: Caption, answer: str
) -> alt.LayerChart | None:
    """Blocks from each release to its end (or its limit) in UTC; None when no release time is stored."""
    blocks = _blocks(batches)
    if not blocks:
        return None
    marks = _disturbances(blocks, observer)
    rows = [
        row for row in _ROWS if row in {block["row"] for block in blocks} or (row == "disturbances" and marks)
    ]
    x = alt.X(
        "start:T",
        title="cluster time (UTC)",
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(labelOverlap="greedy"),
    )
    y = alt.Y("row:N", title=None, sort=rows, scale=alt.Scale(domain=rows))
    colour = alt.Color(
        "verdict:N", scale=alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values())), legend=None
    )
    tooltip = ["stage:N", "batch:Q", "repeat:Q", "start:T", "end:T", "verdict:N", "reasons:N"]
    base = alt.Chart(data(blocks)).encode(y=y)
    layers = [
        base.mark_bar(height=22, stroke="white", strokeWidth=0.5).encode(
            x=x, x2="end:T", color=colour, tooltip=tooltip
        ),
        base.mark_text(dy=-18, fontSize=11).encode(x=alt.X("middle:T"), text="label:N"),
    ]
    dots = alt.Chart(data(marks)).mark_point(shape="diamond", color=RED, filled=True, size=50)
    layers += [dots.encode(x=x, y=y, tooltip=["start:T", "what:N"])] if marks else []
    return titled(layers, "The run", caption, answer)


def _blocks(batches: pl.DataFrame) -> list[dict[str, Any]]:
    rows = [row for row in batches.sort("released_at").to_dicts() if row["released_at"] is not None]
    lasted = [
        row["end_to_end_s"] if row["end_to_end_s"] is not None else row["limit_s"] or 0.0 for row in rows
    ]
    whole_s = sum(lasted) or 1.0
    return [_block(row, seconds, seconds / whole_s > 0.03) for row, seconds in zip(rows, lasted, strict=True)]


def _block(row: dict[str, Any], seconds: float, wide: bool) -> dict[str, Any]:
    start, sign = row["released_at"], _SIGNS[row["verdict"]]
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
    """Seconds of a batch with refused requests or re-listed watches, first 200."""
    if observer.is_empty():
        return []
    seen = observer.filter((pl.col("http_429") > 0) | (pl.col("relists") > 0)).head(200)
    starts = {(block["stage"], block["batch"], block["repeat"]): block["start"] for block in blocks}
    return [
        {"row": "disturbances", "start": _after(starts[key], row["second"]), "what": _what(row)}
        for row in seen.to_dicts()
        for key in [(row["stage"], row["batch"], row["repeat"])]
        if key in starts
    ]


def _after(start: str, second: int) -> str:
    return (datetime.fromisoformat(start) + timedelta(seconds=second)).isoformat()


def _what(row: dict[str, Any]) -> str:
    counts = {"requests answered 429": row["http_429"], "watches listed again": row["relists"]}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
