"""PURE. What the latency tools found: longest latencies, how sure they are, how they came over time.

Maxima of different tools are different quantities (a timer's lateness, a round trip, a stolen CPU) and
are never subtracted from each other. A maximum says little without the number of samples: with n of
them and none above it, the share of longer ones is below 3/n, with a confidence of 95 %.
"""

from typing import Any

import polars as pl

from tasks.analysis.histograms import Bin, exceedance_bound, merge, percentile_bin, running_max
from tasks.analysis.wording import human_duration, listed

QUANTITIES = {
    "jitterdebugger": "lateness of a timer",
    "cyclictest": "lateness of a timer",
    "oslat": "time in which a busy CPU was taken away",
    "l2reflect": "round trip of a frame",
}
SAMPLES = {"oslat": "turns of its loop", "l2reflect": "round trips"}
QUANTILES = {"p50_us": 50.0, "p99_us": 99.0, "p99_99_us": 99.99, "p99_9999_us": 99.9999}


_JUDGED: list[tuple[str, pl.DataType]] = [
    ("stage", pl.String()),
    ("batch", pl.String()),
    ("verdict", pl.String()),
    ("reasons", pl.List(pl.String())),
]


def judged_segments(runs: pl.DataFrame) -> pl.DataFrame:
    """A verdict per tool and segment: invalid when a row is not ok, degraded when one has a reason."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in runs.select("tool", "segment", "vm", "state", "reason").to_dicts():
        found.setdefault((row["tool"], row["segment"]), []).append(row)
    rows = [
        {"stage": "latency", "batch": f"{tool} segment {segment}", **_judged(mine)}
        for (tool, segment), mine in found.items()
    ]
    return pl.DataFrame(rows, schema=pl.Schema(_JUDGED))


def _judged(mine: list[dict[str, Any]]) -> dict[str, Any]:
    bad = {row["vm"]: row["reason"] for row in mine if row["state"] != "ok"}
    if bad:
        vms = len({row["vm"] for row in mine})
        return {
            "verdict": "invalid",
            "reasons": [f"vm_not_ok: {len(bad)} of {vms}: {next(iter(bad.values()))}"],
        }
    reasons = sorted({row["reason"] for row in mine if row["reason"]})
    return {"verdict": "degraded" if reasons else "valid", "reasons": reasons}


def tools_of(runs: pl.DataFrame) -> list[str]:
    """The tools that measured, in the order of the study."""
    seen = set(runs.get_column("tool").to_list())
    return [tool for tool in QUANTITIES if tool in seen]


def vm_rows(runs: pl.DataFrame, histograms: pl.DataFrame, tool: str) -> list[dict[str, Any]]:
    """One row per VM: samples, longest latency, percentiles of merged bins, coverage, the 3/n bound."""
    mine, bins = runs.filter(pl.col("tool") == tool), histograms.filter(pl.col("tool") == tool)
    return [
        _vm_row(vm, mine.filter(pl.col("vm") == vm), bins.filter(pl.col("vm") == vm))
        for vm in sorted(mine.get_column("vm").unique().to_list())
    ]


def _within(upper_us: float, longest: Any) -> float:
    """The upper edge of a percentile's bin, but no more than the longest of all samples."""
    return upper_us if longest is None else min(upper_us, float(longest))


def _vm_row(vm: str, mine: pl.DataFrame, bins: pl.DataFrame) -> dict[str, Any]:
    n, overflow = (int(mine.get_column(name).sum() or 0) for name in ("samples", "overflow"))
    merged = _merged(bins)
    quantiles = {name: percentile_bin(merged, q, overflow) for name, q in QUANTILES.items()}
    longest = mine.get_column("max_us").max()
    known = mine.select("duration_s", "coverage").drop_nulls().rows()
    elapsed_s = sum(seconds for seconds, _ in known)
    covered_s = sum(seconds * share for seconds, share in known)
    return {
        "vm": vm,
        "cpus": mine.get_column("cpu").n_unique(),
        "segments": mine.get_column("segment").n_unique(),
        "not_ok": mine.filter(pl.col("state") != "ok").height,
        "samples": n,
        **{name: _within(found.upper_ns / 1000, longest) for name, found in quantiles.items() if found},
        **{name: None for name, found in quantiles.items() if found is None},
        "max_us": longest,
        "overflow": overflow,
        "coverage": covered_s / elapsed_s if elapsed_s else None,
        "longer_share": exceedance_bound(n),
    }


def _merged(bins: pl.DataFrame) -> tuple[Bin, ...]:
    names = ["lower_ns", "upper_ns", "count"]
    return merge([[Bin(*row) for row in bins.select(names).iter_rows()]])


def bars(histograms: pl.DataFrame, tool: str) -> list[dict[str, Any]]:
    """All VMs, CPUs and segments of a tool together: lower_us, upper_us, count of each bin."""
    merged = _merged(histograms.filter(pl.col("tool") == tool))
    return [
        {"lower_us": each.lower_ns / 1000, "upper_us": each.upper_ns / 1000, "count": each.count}
        for each in merged
    ]


def maxima_over_time(runs: pl.DataFrame, tool: str) -> list[dict[str, Any]]:
    """Of each VM and segment: the longest latency in it and so far, hours from the start to its end.

    Null where nothing was measured (so far). A segment whose length is not known takes its place on the
    axis as long as the longest one: by the plan all are alike.
    """
    segments = _segments(runs, tool)
    longest_s = segments.get_column("duration_s").max()
    rows: list[dict[str, Any]] = []
    for _, of_vm in segments.group_by("vm", maintain_order=True):
        maxima = of_vm.get_column("max_us").to_list()
        hours = of_vm.get_column("duration_s").fill_null(longest_s).cum_sum() / 3600
        shown = of_vm.select("vm", "segment", "max_us").with_columns(
            hours=hours, so_far_us=pl.Series(running_max(maxima), dtype=pl.Float64)
        )
        rows += shown.to_dicts()
    return rows


def _segments(runs: pl.DataFrame, tool: str) -> pl.DataFrame:
    """One row per VM and segment: the longest latency of its CPUs, and how long it measured."""
    of_tool = runs.filter(pl.col("tool") == tool).group_by("vm", "segment")
    return of_tool.agg(pl.col("max_us").max(), pl.col("duration_s").max()).sort("vm", "segment")


def latency_answer(rows: list[dict[str, Any]], tool: str, length_s: float) -> str:
    """The longest latency of each VM, and what so many samples allow to say of longer ones."""
    known = [row for row in rows if row["max_us"] is not None]
    if not known:
        return f"{tool} measured nothing: {sum(row['not_ok'] for row in rows)} records are not ok."
    each = listed([f"{row['max_us']:g} us" for row in known])
    n, what = sum(row["samples"] for row in known), SAMPLES.get(tool, "samples")
    longest = max(row["max_us"] for row in known)
    vms = "one VM" if len(known) == 1 else f"{len(known)} VMs"
    said = (
        f"The longest {QUANTITIES[tool]} was {each} in {human_duration(length_s)} of {vms}; with {n:,} "
        f"{what} and none above {longest:g} us, a longer one comes less often than once in {n // 3:,} "
        "(3/n, 95 % confidence)"
    )
    bad = sum(row["not_ok"] for row in rows)
    return said + (f"; {bad} records are not ok." if bad else ".")


def length_s(runs: pl.DataFrame, tool: str) -> float:
    """How long a tool measured: the sum of its segments, of the VM where that is longest."""
    per_vm = _segments(runs, tool).group_by("vm").agg(pl.col("duration_s").sum())
    return max(per_vm.get_column("duration_s").to_list(), default=0.0)
