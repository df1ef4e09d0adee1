"""PURE. The sections of the io stage: throughput under the cap, and latency beside the baseline."""

from collections.abc import Mapping

import polars as pl

from tasks.analysis.io_answers import curves, latency_answer, segments, summaries, throughput_answer
from tasks.charts.io_curves import IOPS, P50, P99, THROUGHPUT, io_chart
from tasks.charts.look import Caption
from tasks.report.section import Section
from tasks.report.tables import table

_READ = (
    "Circle: the asked rate was reached. Triangle: saturated, it was not. Diamond, dashed: paced baseline. "
    "A line joins only neighbours that were limited by the same thing; equal values lie on each other."
)
_SHOWN = [
    "pattern", "block_kib", "vms", "vms_per_node", "repeat", "asked_gib_per_s", "gib_per_s", "iops",
    "saturated", "depth", "p50_us", "p95_us", "p99_us", "max_us", "baseline_p50_us", "baseline_p99_us",
    "baseline_iops", "baseline_pause_us", "n", "n_ok", "start_skew_ms", "dataset_gib",
    "run_s", "verdict", "reasons",
]  # fmt: skip


def io_sections(frames: Mapping[str, pl.DataFrame], caption: Caption) -> list[Section]:
    """Throughput and latency of the cells; nothing when none was measured."""
    cells = frames["io_cells"]
    throughput, latency = throughput_answer(cells), latency_answer(cells)
    if throughput is None or latency is None:
        return []
    rows = segments(curves(cells))
    loads = [row for row in rows if row["phase"] == "load"]
    of_cells = table("io cells: load beside baseline", summaries(cells).select(_SHOWN), "io_cells")
    charts = [(io_chart(loads, each, caption, throughput), _READ) for each in (THROUGHPUT, IOPS)]
    first = Section("io", _HOW_MUCH, throughput, _method(cells), charts, [of_cells])
    charts = [(io_chart(rows, each, caption, latency), _READ) for each in (P50, P99)]
    tables = [table("io VMs: spread within a cell", _spread(frames["io_vms"]), "io_vms")]
    return [first, Section("io-latency", _HOW_LONG, latency, _METHOD, charts, tables)]


_HOW_MUCH = "How much IO do the VMs get, and does it scale?"
_HOW_LONG = "How long does a single IO take as VMs grow?"
_METHOD = [
    "fio's completion latency by each guest's monotonic clock. A cell's percentiles come from the merged "
    "histograms of all its VMs: nearest rank, the middle of the bin, never an average of percentiles.",
    "The baseline is one request at a time per VM, the same block size and pattern, followed by a pause; VMs "
    "are staggered. An idle path may be slower than a busy one (CPUs that sleep, caches that went cold).",
]


def _method(cells: pl.DataFrame) -> list[str]:
    load = cells.filter(pl.col("phase") == "load")
    n, n_ok = (int(load.get_column(name).sum()) for name in ("n", "n_ok"))
    skew = cells.get_column("start_skew_ms").max()
    late = f"{skew:.1f} ms" if isinstance(skew, float) else "not known"
    return [
        "One fio in every guest, direct, random over the whole data set, data that does not compress; all "
        f"start at an agreed instant (largest skew {late}: guests' clocks, their stated error included).",
        "The cap is split exactly over the VMs; queue depth by Little's law unless the profile states it. "
        "Saturated: the VMs that ran missed what was asked of them by more than limits.io_saturated_share.",
        f"n = {n:,} VMs in {load.height:,} loads, {n - n_ok:,} of them without a result: they count in n and "
        "nowhere else.",
    ]


def _spread(vms: pl.DataFrame) -> pl.DataFrame:
    """Of each loaded cell the slowest, median and quickest VM, and the worst p99."""
    keys = ["pattern", "block_kib", "vms"]
    loaded = vms.filter(pl.col("phase") == "load")
    return (
        loaded.group_by(keys)
        .agg(
            pl.len().alias("n"),
            pl.col("iops").min().alias("iops_min"),
            pl.col("iops").median().alias("iops_median"),
            pl.col("iops").max().alias("iops_max"),
            pl.col("p99_us").median().alias("p99_median_us"),
            pl.col("p99_us").max().alias("p99_worst_us"),
        )
        .sort(keys)
    )
