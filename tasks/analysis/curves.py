"""PURE. The end-to-end curve of a stage: one point per batch size."""

import polars as pl

from tasks.analysis.doubling import Point
from tasks.analysis.percentiles import nearest_rank


def curve(batches: pl.DataFrame, stage: str) -> list[Point]:
    """Points of a stage in the order of sizes, from table `batches`.

    With several repeats a point is their median (nearest rank, an unfinished repeat ranks last).
    """
    rows = batches.filter(pl.col("stage") == stage)
    groups = rows.group_by("batch").agg("end_to_end_s", pl.col("limit_s").max()).sort("batch")
    return [Point(n, nearest_rank(times, 50.0), limit_s) for n, times, limit_s in groups.iter_rows()]


def most_efficient(points: list[Point]) -> Point | None:
    """The complete batch with the lowest time per VM: the line of ideal doubling goes through it."""
    complete = [point for point in points if point.t_s is not None]
    return min(complete, key=lambda point: (point.t_s or 0.0) / point.n, default=None)
