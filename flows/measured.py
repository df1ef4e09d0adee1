"""What a store says about a run's measured batches, as rows for people and machines."""

from typing import Any

from infra.results.port import ObjectStore
from infra.results.read import scan
from tasks.analysis.summaries import summaries
from tasks.records import TABLES

Row = dict[str, Any]


def measured_rows(store: ObjectStore, run_id: str) -> list[Row]:
    """One row per batch, last complete attempts, in the order of commit: counts, end to end, percentiles."""
    batches = scan(store, run_id, "batches", TABLES["batches"])
    percentiles = scan(store, run_id, "percentiles", TABLES["percentiles"])
    return summaries(batches, percentiles).to_dicts()
