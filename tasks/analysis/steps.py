"""PURE. Where the time of a VM goes: what each observed step added."""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from tasks.analysis.percentiles import nearest_rank


def step_gaps(vms: pl.DataFrame, steps: Sequence[str]) -> list[dict[str, Any]]:
    """Rows (batch, order, step, median_s, n, n_ok): the median time that each step added, per batch.

    For one VM a step adds the time from the latest earlier step (the release for the first) to
    itself, 0 when it was seen before one of them. A VM that did not reach the step has none and
    ranks last, so a median among those is None. Repeats are pooled. Seconds, observer's clock.
    """
    gaps = vms.select("batch", *(_gap(steps[:i], step) for i, step in enumerate(steps)))
    return [
        row
        for (batch,), group in gaps.group_by("batch", maintain_order=True)
        for row in _medians(batch, group, steps)
    ]


def _gap(earlier: Sequence[str], step: str) -> pl.Expr:
    before = pl.max_horizontal([f"{name}_s" for name in earlier]) if earlier else pl.lit(0.0)
    return (pl.col(f"{step}_s") - before.fill_null(0.0)).clip(0.0).alias(step)


def _medians(batch: object, group: pl.DataFrame, steps: Sequence[str]) -> Iterator[dict[str, Any]]:
    for order, step in enumerate(steps):
        gaps = group.get_column(step)
        n, seen = gaps.len(), gaps.count()
        median_s = nearest_rank(gaps.to_list(), 50.0)
        yield {"batch": batch, "order": order, "step": step, "median_s": median_s, "n": n, "n_ok": seen}


def shares(gaps: Sequence[dict[str, Any]], batch: int) -> dict[str, float]:
    """Share of each step in the sum of a batch's medians; steps beyond the limit are left out."""
    known = {
        gap["step"]: gap["median_s"] for gap in gaps if gap["batch"] == batch and gap["median_s"] is not None
    }
    total = sum(known.values())
    return {step: median_s / total for step, median_s in known.items()} if total else {}
