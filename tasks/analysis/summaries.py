"""PURE. One row per measured batch with the percentiles of its headline step."""

from collections.abc import Collection

import polars as pl

HEADLINE_STEPS = {
    "deploy": ("deployed",),
    "delete": ("volume_gone",),
    "boot": ("ssh_ready", "running"),
    "stop": ("halted",),
}
"""The step that a stage is about; the next one where the world cannot see the first."""

KEYS = ("stage", "batch", "repeat", "attempt")
PERCENTILES = {"p50_s": 50.0, "p90_s": 90.0, "p95_s": 95.0, "p99_s": 99.0, "max_s": 100.0}


def observed_steps(percentiles: pl.DataFrame, stage: str) -> list[str]:
    """Steps of a stage that this world can see: those that have percentile rows."""
    steps = percentiles.filter(pl.col("stage") == stage).get_column("step")
    return steps.unique(maintain_order=True).to_list()


def headline_step(stage: str, steps: Collection[str]) -> str | None:
    """The headline among the steps that were observed; None when no candidate was."""
    return next((step for step in HEADLINE_STEPS[stage] if step in steps), None)


def summaries(batches: pl.DataFrame, percentiles: pl.DataFrame) -> pl.DataFrame:
    """Table `batches` with `step`, p50_s, p90_s, p95_s, p99_s and max_s of the headline, from the release.

    `p50_error_s` and `p99_error_s` say how wide those were observed.

    A null percentile beside a `step` lies beyond `limit_s`; beside a null `step` it was not observable.
    """
    steps = {stage: headline_step(stage, observed_steps(percentiles, stage)) for stage in HEADLINE_STEPS}
    chosen = pl.col("stage").replace_strict(steps, default=None, return_dtype=pl.String)
    rows = percentiles.filter((pl.col("basis") == "release") & (pl.col("step") == chosen))
    values = [
        pl.col("value_s").filter(pl.col("q") == q).first().alias(name) for name, q in PERCENTILES.items()
    ]
    values += [
        pl.col("error_s").filter(pl.col("q") == PERCENTILES[f"{name}_s"]).first().alias(f"{name}_error_s")
        for name in ("p50", "p99")
    ]
    wide = rows.group_by(*KEYS, "step", maintain_order=True).agg(values)
    return batches.join(wide, on=list(KEYS), how="left", maintain_order="left")
