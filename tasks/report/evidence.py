"""PURE. The parts of the report that say how far to trust it: failed VMs, validity, provenance."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from tasks.analysis.latency import judged_segments
from tasks.analysis.wording import human_duration, listed, step_name
from tasks.charts.look import Caption
from tasks.charts.timeline import timeline_chart
from tasks.records import NOT_OK, STEPS, VM_TABLES
from tasks.report.sections import Frames, Section
from tasks.report.tables import Table, table

SHOWN_WITH_EVIDENCE = 20
SHOWN_IN_TABLE = 500
COUNTED = ("throttled_s", "http_429", "http_5xx", "relists", "resumed", "lock_aborts", "client_throttled_s")
"""Columns of `observer` that are shown added up."""


class FailedVM(NamedTuple):
    """A VM that is not ok: which, why, how far it came, and what was kept of its objects (text)."""

    batch: str
    vm: str
    state: str
    reason: str
    reached: str
    evidence: str


def failed_vms(frames: Frames) -> pl.DataFrame:
    """All VM records that are not ok: stage, batch, repeat, vm, state, reason, detail, last step and time."""
    parts = [_failed(frames[name], stage) for stage, name in VM_TABLES.items() if not frames[name].is_empty()]
    if not frames["io_vms"].is_empty():
        parts.append(_failed_io(frames["io_vms"]))
    return pl.concat(parts) if parts else pl.DataFrame()


def _failed_io(vms: pl.DataFrame) -> pl.DataFrame:
    """VMs without a result in a phase of a cell; they have no steps."""
    cell = pl.format("{} KiB {}, {}: {}", "block_kib", "pattern", "phase", "reason")
    return vms.filter(pl.col("state") != "ok").select(
        pl.lit("io").alias("stage"),
        pl.col("vms").alias("batch"),
        "repeat",
        "vm",
        "state",
        pl.lit(NOT_OK).alias("reason"),
        cell.alias("detail"),
        pl.lit(None, pl.String).alias("last_step"),
        pl.lit(None, pl.Float64).alias("last_step_s"),
    )


def _failed(vms: pl.DataFrame, stage: str) -> pl.DataFrame:
    steps = [f"{step}_s" for step in STEPS[stage]]
    last = pl.coalesce(
        pl.when(pl.col(column).is_not_null()).then(pl.lit(column.removesuffix("_s")))
        for column in reversed(steps)
    )
    last_s = pl.coalesce(pl.col(column) for column in reversed(steps))
    columns = ["batch", "repeat", "vm", "state", "reason", "detail"]
    rows = vms.filter(pl.col("state") != "ok")
    return rows.select(
        pl.lit(stage).alias("stage"), *columns, last.alias("last_step"), last_s.alias("last_step_s")
    )


def failed_section(failed: pl.DataFrame) -> Section | None:
    """How many VMs were not ok, and the first of them; None when all were."""
    if failed.is_empty():
        return None
    shown = failed.head(SHOWN_IN_TABLE)
    answer = f"{failed.height:,} VM records are not ok."
    if shown.height < failed.height:
        answer += f" The table has the first {shown.height:,}."
    method = ["Every VM of a batch has one record; what was not observed of it is empty, never zero."]
    tables = [table("VMs that are not ok", shown, "vm_boots, vm_deploys, vm_deletes, vm_stops")]
    return Section("failed", "Which VMs failed, and why?", answer, method, (), tables)


def failed_cards(failed: pl.DataFrame, evidence: pl.DataFrame) -> list[FailedVM]:
    """The first failed VMs, those of which something was kept (table `evidence`) before the others."""
    kept: dict[tuple[Any, ...], list[str]] = {}
    for row in evidence.to_dicts():
        kept.setdefault(_of(row), []).append(f"{row['kind']} {row['name']}\n{row['document']}")
    rows = sorted(failed.to_dicts(), key=lambda row: _of(row) not in kept)
    return [_card(row, kept.get(_of(row), [])) for row in rows[:SHOWN_WITH_EVIDENCE]]


def _of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which record of a VM."""
    return row["stage"], row["batch"], row["repeat"], row["vm"]


def _card(row: Mapping[str, Any], kept: list[str]) -> FailedVM:
    reached = "no step observed"
    if row["last_step"] is not None:
        reached = f"last step: {step_name(row['last_step'])} after {human_duration(row['last_step_s'])}"
    reason = ": ".join(text for text in (row["reason"], row["detail"]) if text) or "no reason recorded"
    batch = f"{row['stage']} {row['batch']:,}"
    return FailedVM(batch, row["vm"], row["state"], reason, reached, "\n\n".join(kept))


def validity_section(frames: Frames, caption: Caption) -> Section | None:
    """What disturbed which batch, on one axis with the batches; of nothing measured what preflight found."""
    batches, valid = frames["batches"], _valid(frames)
    if not valid:
        return _preflight_section(frames["checks"])
    answer = f"{listed(valid)} are valid; {_watched(frames['observer'])}."
    chart = timeline_chart(batches, frames["observer"], caption, answer)
    read = "Blocks: batches. △: degraded. ✕: invalid. Diamonds: refused requests or watches listed again."
    method = [
        "What was measured is valid, degraded or invalid by the thresholds in the profile's [limits]; the "
        "run's verdict is the worst of all.",
        "Times on the axis are the cluster's; durations come from the observer's monotonic clock.",
    ]
    if caption.world == "virtual":
        method.append("Each measured stage worked on a copy of the prepared cluster, so times overlap.")
    method += _beside(frames["observer"])
    tables = []
    if not batches.is_empty():
        tables.append(
            table("batches and what was observed beside them", _observed(frames), "batches, observer")
        )
    if not frames["checks"].is_empty():
        tables.append(_checks_table(frames["checks"]))
    charts = [(chart, read)] if chart else []
    return Section("validity", "How far can these numbers be trusted?", answer, method, charts, tables)


def _valid(frames: Frames) -> list[str]:
    """How many of what has a verdict are valid: `28 of 28 batches`."""
    judged = {
        ("batch", "batches"): frames["batches"],
        ("IO measurement", "IO measurements"): frames["io_cells"],
        ("latency segment", "latency segments"): judged_segments(frames["latency_runs"]),
    }
    return [
        f"{rows.filter(pl.col('verdict') == 'valid').height:,} of {rows.height:,} {names[rows.height > 1]}"
        for names, rows in judged.items()
        if not rows.is_empty()
    ]


def _watched(observer: pl.DataFrame) -> str:
    """What was observed beside the batches; a second without a row had nothing worth saying."""
    lag_ms = observer.get_column("watch_lag_ms").max()
    lag = f"at most {lag_ms:,.0f} ms" if isinstance(lag_ms, float) else "not known"
    refused, relists = (int(observer.get_column(name).sum()) for name in ("http_429", "relists"))
    return f"lag of the watches {lag}, {refused:,} requests refused (429), {relists:,} watches listed again"


def _preflight_section(checks: pl.DataFrame) -> Section | None:
    """What preflight found, when it is all there is."""
    if checks.is_empty():
        return None
    counts = dict(checks.group_by("status").len().sort("status").iter_rows())
    told = ", ".join(f"{n} {status}" for status, n in counts.items())
    answer = f"Preflight made {checks.height} checks: {told}."
    return Section(
        "preflight", "Is the cluster ready to be measured?", answer, [], [], [_checks_table(checks)]
    )


def _checks_table(checks: pl.DataFrame) -> Table:
    return table("preflight checks", checks.select("name", "status", "found", "needed", "hint"), "checks")


def _beside(observer: pl.DataFrame) -> Iterator[str]:
    """What happened beside the batches and shows in their times, in sentences."""
    total = {name: observer[name].sum() for name in COUNTED}
    if total["lock_aborts"]:
        yield f"Restores that found their snapshot locked, and were tried again: {total['lock_aborts']:,}."
    if total["client_throttled_s"]:
        held = human_duration(float(total["client_throttled_s"]))
        yield f"Calls of the cluster's components, held back by their clients' limits: {held}, all added up."
    if total["resumed"] or total["relists"]:
        yield f"Our watches: resumed {total['resumed']:,}, listed again {total['relists']:,}."


def _observed(frames: Frames) -> pl.DataFrame:
    keys = ["stage", "batch", "repeat", "attempt"]
    observed = (
        frames["observer"]
        .group_by(keys)
        .agg(pl.col("watch_lag_ms", "loop_lag_ms").max(), *(_total(name) for name in COUNTED))
    )
    own = [
        *keys, "verdict", "reasons", "asked_rate_per_s", "achieved_rate_per_s", "quiesce_s", "leftovers"
    ]  # fmt: skip
    return frames["batches"].select(own).join(observed, on=keys, how="left", maintain_order="left")


def _total(name: str) -> pl.Expr:
    """What a batch's seconds add up to; null where no second has it, which is not zero."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)


def provenance(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the run stood on, flattened to (name, value); the profile aside, it is shown whole."""
    return list(_leaves({key: value for key, value in manifest.items() if key != "profile"}, ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, "not known" if value is None else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
