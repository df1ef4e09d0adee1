"""PURE. What two runs are compared by: the headline of each stage, read from the stored tables.

A stage's headline step is that of both runs' end points; percentiles count from the release, each with
the error bound that it was observed with. IO cells are paired by VMs and repeat, latency by segment (the
largest value of all VMs and CPUs of it).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tasks.analysis.comparison import Metric, Reading, Readings, Unit
from tasks.analysis.distribution import error_of
from tasks.analysis.summaries import HEADLINE_STEPS, PERCENTILES, summaries
from tasks.tool_output.fio_bins import PER_GROUP

Frames = Mapping[str, pl.DataFrame]

TABLES_READ = ("batches", "percentiles", "io_cells", "latency_runs")
"""The tables that `readings_of` looks at."""

TOOL_STEP_US = 1.0
"""Latency tools count in whole microseconds: 6 and 7 us may be next to no difference."""

SHOWN_PERCENTILES = {"deploy": ("p50_s", "p99_s"), "boot": ("p50_s", "p99_s"), "delete": (), "stop": ()}
_IO = {
    "iops": ("IOPS", "io_rate", "IOPS", True),
    "p50_us": ("p50", "io_latency", "us", False),
    "p99_us": ("p99", "io_latency", "us", False),
}  # fmt: skip
_BIN_SHARES = {"iops": 0.0, "p50_us": 1 / PER_GROUP, "p99_us": 1 / PER_GROUP}
"""How wide fio observes a column, as a share of it: operations are counted, latencies lie in bins."""


def readings_of(frames: Frames) -> dict[Metric, Readings]:
    """Every metric of a run with its value per size and repeat; tables may be empty or missing."""
    found: dict[Metric, dict[Unit, Reading]] = {}
    for read in (_of_batches, _of_io, _of_latency):
        for metric, unit, reading in read(frames):
            found.setdefault(metric, {})[unit] = reading
    return {**found}


Found = Iterator[tuple[Metric, Unit, Reading]]


def _of_batches(frames: Frames) -> Found:
    if frames["batches"].is_empty():
        return
    rows = summaries(frames["batches"], frames["percentiles"])
    for stage in HEADLINE_STEPS:
        of_stage = rows.filter(pl.col("stage") == stage).sort("batch", "repeat").to_dicts()
        for column in ("end_to_end_s", *SHOWN_PERCENTILES[stage]):
            metric = _batch_metric(stage, column)
            for row in of_stage if column not in PERCENTILES else filter(_has_step, of_stage):
                reading = Reading(row[column], row["limit_s"], row[error_of(column)])
                yield metric, (row["batch"], row["repeat"]), reading


def _has_step(row: Mapping[str, Any]) -> bool:
    """A percentile exists where the world can see the headline step; without it, its null says nothing."""
    return row["step"] is not None


def _batch_metric(stage: str, column: str) -> Metric:
    if column == "end_to_end_s":
        return Metric(f"{stage} end to end", "end_to_end", "s")
    return Metric(f"{stage} {column.removesuffix('_s')}", "percentile", "s")


def _of_io(frames: Frames) -> Found:
    cells = frames.get("io_cells", pl.DataFrame())
    if cells.is_empty():
        return
    rows = cells.filter(pl.col("phase") == "load").sort("block_kib", "pattern", "vms", "repeat")
    for row in rows.to_dicts():
        for column, (name, family, unit, higher) in _IO.items():
            metric = Metric(f"io {row['block_kib']} KiB {row['pattern']} {name}", family, unit, higher)  # type: ignore[arg-type]
            error = (row[column] or 0.0) * _BIN_SHARES[column]
            yield metric, (row["vms"], row["repeat"]), Reading(row[column], None, error)


def _of_latency(frames: Frames) -> Found:
    runs = frames.get("latency_runs", pl.DataFrame())
    if runs.is_empty():
        return
    rows = runs.group_by("tool", "segment").agg(pl.col("max_us").max()).sort("tool", "segment")
    for tool, segment, max_us in rows.iter_rows():
        metric = Metric(f"{tool}, longest per segment", "jitter", "us")
        yield metric, (0, segment + 1), Reading(max_us, None, TOOL_STEP_US)
