"""PURE. One phase of an io cell: from what every VM's fio said to the rows that are stored.

Latencies are fio's completion latencies. Those of a cell come from merged histograms; a VM without a
result counts in n and nowhere else, its row holds nulls.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.analysis.histograms import Bin, Histogram, percentile_bin

GIB = 1024**3
QUANTILES = (50.0, 95.0, 99.0)
_COLUMNS = ("p50_us", "p95_us", "p99_us")


@dataclass(frozen=True, slots=True)
class VmResult:
    """What one VM did; everything but `vm`, `node`, `state` and `reason` is None without a result.

    `started_ms` is how long after the agreed instant it began, by its own clock, which is wrong by
    `clock_error_ms` at most (None: not known).
    """

    vm: str
    node: str | None
    state: str
    reason: str | None = None
    asked_gib_per_s: float | None = None
    iops: float | None = None
    gib_per_s: float | None = None
    percentiles_us: tuple[float, ...] | None = None
    max_us: float | None = None
    started_ms: float | None = None
    clock_error_ms: float | None = None


class Merged:
    """Bins of many VMs added up as they come."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, bins: Iterable[Bin]) -> None:
        """Add the bins of one VM."""
        counts = self._counts
        for lower_ns, upper_ns, count in bins:
            edges = (lower_ns, upper_ns)
            counts[edges] = counts.get(edges, 0) + count

    def histogram(self) -> Histogram:
        """All of them, ascending."""
        return tuple(Bin(*edges, count) for edges, count in sorted(self._counts.items()))


def start_skew_ms(results: Sequence[VmResult]) -> float | None:
    """First start to last, widened by how wrong the guests hold their clocks to be.

    None without starts, and where a guest that started does not know how wrong its clock is.
    """
    starts = [(each.started_ms, each.clock_error_ms) for each in results if each.started_ms is not None]
    errors = [error for _, error in starts if error is not None]
    if not starts or len(errors) < len(starts):
        return None
    moments = [moment for moment, _ in starts]
    return max(moments) - min(moments) + 2 * max(errors)


def cell_row(results: Sequence[VmResult], merged: Histogram, asked_gib_per_s: float) -> dict[str, Any]:
    """The measured columns of a row of `io_cells`."""
    good = [each for each in results if each.state == "ok"]
    maxima = [each.max_us for each in good if each.max_us is not None]
    rates = [each.gib_per_s for each in good if each.gib_per_s is not None]
    return {
        "asked_gib_per_s": asked_gib_per_s,
        "iops": sum(each.iops or 0.0 for each in good) if good else None,
        "gib_per_s": sum(rates) if rates else None,
        **dict(zip(_COLUMNS, percentiles_us(merged), strict=True)),
        "max_us": max(maxima, default=None),
        "n": len(results),
        "n_ok": len(good),
        "start_skew_ms": start_skew_ms(results),
    }


def percentiles_us(histogram: Histogram) -> list[float | None]:
    """p50, p95 and p99 by nearest rank, us: the middle of their bins; None without latencies."""
    found = (percentile_bin(histogram, q) for q in QUANTILES)
    return [None if each is None else each.middle_ns / 1000 for each in found]


def is_saturated(row: Mapping[str, Any], share: float) -> bool | None:
    """Whether a loaded cell missed what was asked of its VMs by more than `share`; None without a result."""
    if row["gib_per_s"] is None:
        return None
    return bool(row["gib_per_s"] < row["asked_gib_per_s"] * row["n_ok"] / row["n"] * (1 - share))


def vm_rows(results: Iterable[VmResult]) -> list[dict[str, Any]]:
    """The measured columns of rows of `io_vms`."""
    return [_vm_row(each) for each in results]


def _vm_row(each: VmResult) -> dict[str, Any]:
    percentiles = each.percentiles_us or (None,) * len(_COLUMNS)
    return {
        "vm": each.vm,
        "node": each.node,
        "state": each.state,
        "reason": each.reason,
        "asked_gib_per_s": each.asked_gib_per_s,
        "iops": each.iops,
        "gib_per_s": each.gib_per_s,
        **dict(zip(_COLUMNS, percentiles, strict=True)),
        "max_us": each.max_us,
        "start_skew_ms": each.started_ms,
    }


def histogram_rows(histogram: Histogram, vm: str | None) -> list[dict[str, Any]]:
    """The columns of rows of `io_histograms`; `vm` None: of the whole cell."""
    return [
        {"vm": vm, "lower_ns": lower_ns, "upper_ns": upper_ns, "count": count}
        for lower_ns, upper_ns, count in histogram
    ]
