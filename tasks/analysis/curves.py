"""PURE. The end-to-end curve of a stage: one point per batch size."""

from collections.abc import Sequence

import polars as pl

from tasks.analysis.doubling import Point
from tasks.analysis.percentiles import bounded_ranks


def curve(batches: pl.DataFrame, stage: str) -> list[Point]:
    """Points of a stage in the order of sizes, from table `batches`.

    With several repeats a point is their median (nearest rank, an unfinished repeat ranks last).
    """
    rows = batches.filter(pl.col("stage") == stage)
    columns = ["end_to_end_s", "end_to_end_error_s", pl.col("limit_s").max()]
    groups = rows.group_by("batch").agg(columns).sort("batch")
    return [
        Point(n, t_s, limit_s, error_s)
        for n, times, errors, limit_s in groups.iter_rows()
        for t_s, error_s in [bounded_ranks(times, errors, [50.0])[50.0]]
    ]


def most_efficient(points: Sequence[Point]) -> Point | None:
    """The complete batch with the lowest time per VM: the line of ideal doubling goes through it."""
    complete = [point for point in points if point.t_s is not None]
    return min(complete, key=lambda point: (point.t_s or 0.0) / point.n, default=None)
