"""What a store says about a run's measured batches, as rows for people and machines."""

from typing import Any

from infra.results.port import ObjectStore
from infra.results.read import scan
from tasks.analysis.summaries import summaries
from tasks.records import STEPS, TABLES

Row = dict[str, Any]


def measured_rows(store: ObjectStore, run_id: str) -> list[Row]:
    """One row per batch, last complete attempts: counts, end to end, percentiles.

    In the order of a study, a stage's batches in the order of commit.
    """
    batches = scan(store, run_id, "batches", TABLES["batches"])
    percentiles = scan(store, run_id, "percentiles", TABLES["percentiles"])
    rows = summaries(batches, percentiles).to_dicts()
    return sorted(rows, key=lambda row: list(STEPS).index(row["stage"]))
