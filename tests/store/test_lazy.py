"""Polars reads runs straight from a store, whatever the folders above are called."""

from pathlib import Path

import pytest

from infra.results.lazy import scan_lazy
from infra.results.open import open_store
from infra.results.run_results import open_results
from tasks.records import TABLES
from tests.unit.results.rows import CELL, deploys, read


@pytest.mark.parametrize("above", ["run_id=evil/stage=boot", "attempt=7", "run_id=evil/plain"])
@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_folders_above_the_store_that_look_like_columns_are_none(
    moto_bucket: str, tmp_path: Path, kind: str, above: str
) -> None:
    store = open_store(f"s3://{moto_bucket}/{above}" if kind == "bucket" else str(tmp_path / above))
    for run_id, rows in (("r", 2), ("q", 3)):
        attempt = open_results(store, run_id, "virtual", TABLES, tmp_path / run_id).begin(CELL)
        attempt.add("vm_deploys", deploys(rows))
        attempt.commit({})
    found = scan_lazy(store, ["r", "q"], "vm_deploys", TABLES["vm_deploys"]).collect()
    assert found["run_id"].to_list() == ["r"] * 2 + ["q"] * 3
    assert found.filter(run_id="r").equals(read(store))
