"""PURE. What the io tables say: rows for charts and tables, and answers in sentences.

Repeats of a cell are pooled by their median where one number is wanted; every row stays in the tables.
"""

from collections.abc import Sequence
from typing import Any

import polars as pl

from tasks.analysis.wording import listed, percent

CELL = ["pattern", "block_kib", "vms"]


def summaries(cells: pl.DataFrame) -> pl.DataFrame:
    """One row per cell: its load beside its baseline, by pattern, block size and VMs; columns as stored."""
    load, base = (cells.filter(pl.col("phase") == phase) for phase in ("load", "baseline"))
    keys = [*CELL, "repeat"]
    beside = base.select(
        *keys,
        pl.col("p50_us").alias("baseline_p50_us"),
        pl.col("p99_us").alias("baseline_p99_us"),
        pl.col("iops").alias("baseline_iops"),
        pl.col("pause_us").alias("baseline_pause_us"),
    )
    return load.join(beside, on=keys, how="left").sort(keys)


def curves(cells: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows for charts: one per cell, repeats pooled by median; `kind` is cap-bound, saturated or baseline."""
    measured = cells.filter(pl.col("gib_per_s").is_not_null())
    numbers = ["iops", "gib_per_s", "p50_us", "p95_us", "p99_us", "asked_gib_per_s"]
    pooled = (
        measured.group_by(*CELL, "phase")
        .agg(pl.col(numbers).median(), pl.col("saturated").any(), pl.col("verdict").first())
        .sort(*CELL, "phase")
    )
    return [_with_kind(row) for row in pooled.to_dicts()]


def _with_kind(row: dict[str, Any]) -> dict[str, Any]:
    kind = "baseline" if row["phase"] == "baseline" else "saturated" if row["saturated"] else "at the cap"
    return {**row, "kind": kind, "cell": f"{row['block_kib']} KiB {row['pattern']}"}


def segments(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with a `line`: neighbours of one cell and kind share it, so nothing else is joined."""
    lines: list[dict[str, Any]] = []
    for row in rows:
        before = next((old for old in reversed(lines) if _same_curve(old, row)), None)
        number = before["number"] if before else 0
        if before is not None and before["kind"] != row["kind"]:
            number += 1
        lines.append({**row, "number": number, "line": f"{row['cell']} {row['phase']} {number}"})
    return lines


def _same_curve(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return bool(a["cell"] == b["cell"] and a["phase"] == b["phase"])


def throughput_answer(cells: pl.DataFrame) -> str | None:
    """Where the cap was reached, and where not; None when no load was measured."""
    rows = [row for row in curves(cells) if row["phase"] == "load"]
    if not rows:
        return None
    cap = max(row["asked_gib_per_s"] for row in rows)
    said = [_reached(name, [row for row in rows if row["cell"] == name]) for name in _names(rows)]
    return f"Of {cap:g} GiB/s asked of the whole fleet: {'; '.join(said)}."


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["cell"] for row in rows))


def _reached(name: str, rows: Sequence[dict[str, Any]]) -> str:
    missed = [row for row in rows if row["kind"] == "saturated"]
    most = max(row["iops"] for row in rows)
    if not missed:
        return f"{name}s reach it at every size ({most:,.0f} IOPS)"
    worst = min(missed, key=lambda row: row["gib_per_s"])
    sizes = listed([f"{row['vms']:,}" for row in missed])
    share = worst["gib_per_s"] / worst["asked_gib_per_s"]
    return f"{name}s do not at {sizes} VMs, least {worst['gib_per_s']:.2f} GiB/s ({percent(share)})"


def latency_answer(cells: pl.DataFrame) -> str | None:
    """p50 under load beside the paced baseline, reads against writes, and the tail of few VMs."""
    rows = [row for row in summaries(cells).to_dicts() if row["p50_us"] is not None]
    if not rows:
        return None
    parts = [_range(rows, pattern) for pattern in ("read", "write")]
    return " ".join([*(part for part in parts if part), *_idle(rows), *_tail(rows)])


def _range(rows: Sequence[dict[str, Any]], pattern: str) -> str:
    values = [row["p50_us"] for row in rows if row["pattern"] == pattern]
    if not values:
        return ""
    return f"p50 of {pattern}s under load: {us(min(values))} to {us(max(values))}."


def _idle(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The effect that the study saw: reads under load may be quicker than idle ones."""
    reads = [row for row in rows if row["pattern"] == "read" and row["baseline_p50_us"] is not None]
    quicker = sum(row["p50_us"] < row["baseline_p50_us"] for row in reads)
    if not reads:
        return []
    return [f"In {quicker} of {len(reads)} cells reads under load are quicker than the paced baseline."]


def _tail(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How much longer the p99 of writes is at the smallest size than at the next."""
    writes = [row for row in rows if row["pattern"] == "write"]
    sizes = sorted({row["vms"] for row in writes})[:2]
    p99 = {(row["block_kib"], row["vms"]): row["p99_us"] for row in writes}
    said = [
        f"{block} KiB {p99[block, sizes[0]] / p99[block, sizes[1]]:.2f} times"
        for block in sorted({row["block_kib"] for row in writes})
        if len(sizes) == 2 and all((block, size) in p99 for size in sizes)
    ]
    return [f"p99 of writes at {sizes[0]:,} VMs against {sizes[1]:,}: {', '.join(said)}."] if said else []


def us(value: float) -> str:
    """Microseconds as text: `281 us`, `1.37 ms`."""
    return f"{value:.0f} us" if value < 1000 else f"{value / 1000:.2f} ms"
