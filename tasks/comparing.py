"""Two stored runs are read and compared; what cannot be compared is refused, key by key."""

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl

from infra.errors import NotComparable, StoreError
from infra.results.manifest import read_manifest
from infra.results.port import ObjectStore
from infra.results.read import scan_tables
from tasks.analysis.comparability import refusal
from tasks.analysis.compared_metrics import TABLES_READ
from tasks.analysis.run_comparison import RunComparison, compared
from tasks.records import TABLES
from tasks.report.comparison_page import comparison_page

Stored = tuple[ObjectStore, str]
"""A store and the id of a run in it."""


def compare_runs(baseline: Stored, run: Stored, allowed: Collection[str] = ()) -> RunComparison:
    """Compare two finished runs; keys that differ must be `allowed`.

    Raises:
        NotComparable: the same run twice, one that is not finished or measured nothing, keys that differ.
        StoreError: a store has no such run.
    """
    if baseline[1] == run[1] and baseline[0].address("") == run[0].address(""):
        raise NotComparable(f"run {run[1]}: compared with itself; name another run as the baseline")
    found = compared(_read(*baseline), _read(*run))
    refused = [each for each in found.differing if each.key not in allowed]
    if refused:
        raise NotComparable(refusal(found.names, refused))
    if not found.metrics:
        raise NotComparable(
            f"run {run[1]} and {baseline[1]} have no batch of the same stage, size and repeat; "
            "measure the baseline's batches"
        )
    return found


def _read(store: ObjectStore, run_id: str) -> tuple[Mapping[str, Any], dict[str, pl.DataFrame]]:
    manifest = read_manifest(store, run_id)
    if manifest is None:
        raise StoreError(f"run {run_id}: the store has no such run (virtscale runs lists them)")
    if manifest["finished_at"] is None:
        raise NotComparable(f"run {run_id} is not finished; go on with virtscale run --run-id {run_id}")
    if manifest["verdict"] is None:
        raise NotComparable(f"run {run_id} measured nothing; compare runs with deploy, boot, io or latency")
    return manifest, scan_tables(store, run_id, {table: TABLES[table] for table in TABLES_READ})


def write_comparison(store: ObjectStore, found: RunComparison) -> str:
    """Write the page beside the run's report; returns where it is."""
    baseline, run = found.names
    key = f"reports/{run}/compared-with-{baseline}.html"
    store.put(key, comparison_page(found).encode())
    return store.address(key)
