"""PURE. The distribution of a step over the VMs of each batch."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from tasks.analysis.percentiles import bounded_ranks, nearest_rank

DRAWN = {"p5_s": 5.0, "p50_s": 50.0, "p95_s": 95.0, "p99_s": 99.0, "max_s": 100.0}


def distributions(vms: pl.DataFrame, step: str) -> list[dict[str, Any]]:
    """Rows (batch, n, n_censored, p5_s, p50_s, p95_s, p99_s, max_s) of a step, from the release.

    `p50_error_s` and so on say how wide each was observed, None where that is not known. VMs of all
    repeats of a size are pooled; None lies beyond the limit.
    """
    groups = vms.group_by("batch").agg(pl.col(f"{step}_s"), pl.col(f"{step}_error_s")).sort("batch")
    return [_row(batch, values, errors) for batch, values, errors in groups.iter_rows()]


def _row(batch: int, values: Sequence[float | None], errors: Sequence[float | None]) -> dict[str, Any]:
    censored = sum(value is None for value in values)
    found = bounded_ranks(values, errors, DRAWN.values())
    quantiles = {name: found[q][0] for name, q in DRAWN.items()}
    bounds = {error_of(name): found[q][1] for name, q in DRAWN.items()}
    return {"batch": batch, "n": len(values), "n_censored": censored, **quantiles, **bounds}


def error_of(column: str) -> str:
    """The column with the error bound of another: `p99_error_s` of `p99_s`."""
    return column.removesuffix("_s") + "_error_s"


def first_boots_and_reboots(boots: pl.DataFrame, step: str) -> list[dict[str, Any]]:
    """Rows (batch, first_boots, reboots, first_p50_s, reboot_p50_s) from table `vm_boots`.

    VMs of unknown `boot_ordinal` are in neither; a median of no VMs is None.
    """
    value, first = pl.col(f"{step}_s"), pl.col("boot_ordinal") == 1
    columns = [value.filter(first).alias("first"), value.filter(pl.col("boot_ordinal") > 1).alias("again")]
    groups = boots.group_by("batch").agg(columns).sort("batch")
    return [
        {
            "batch": batch,
            "first_boots": len(first_s),
            "reboots": len(again_s),
            "first_p50_s": nearest_rank(first_s, 50.0),
            "reboot_p50_s": nearest_rank(again_s, 50.0),
        }
        for batch, first_s, again_s in groups.iter_rows()
    ]
