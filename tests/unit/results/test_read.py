"""Reading back: typed, whole, and never a part that is not what its commit says."""

import polars as pl
import pyarrow as pa
import pytest

from infra.errors import StoreError
from infra.results.folder import FolderStore
from infra.results.read import scan
from infra.results.run_results import RunResults
from tasks.records import TABLES
from tests.unit.results.rows import CELL, deploys, read, rewrite


@pytest.fixture
def part(results: RunResults) -> str:
    """The key of the only part of a committed batch of three."""
    attempt = results.begin(CELL)
    attempt.add("vm_deploys", deploys(3))
    return attempt.commit({}).parts["vm_deploys"][0][0]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_without_rows_has_the_columns_and_types_of_its_schema(store: FolderStore, table: str) -> None:
    frame = read(store, table)
    assert len(frame) == 0
    assert frame.columns == ["run_id", *TABLES[table].names]
    assert pl.Null not in frame.dtypes
    assert frame.schema["run_id"] == pl.String


@pytest.mark.usefixtures("part")
def test_a_table_has_the_same_types_with_rows_and_without(store: FolderStore) -> None:
    assert read(store).schema == scan(store, "other", "vm_deploys", TABLES["vm_deploys"]).schema
    assert read(store)["run_id"].to_list() == ["r"] * 3
    assert read(store)["deployed_s"].to_list() == [row["deployed_s"] for row in deploys(3)]


def test_a_part_that_is_gone_is_named(store: FolderStore, part: str) -> None:
    store.delete(part)
    with pytest.raises(
        StoreError, match=r"deploy-400-1-1-0\.parquet: this part is gone; put back a copy of it, or redo"
    ):
        read(store)


def test_a_part_that_somebody_changed_is_named(store: FolderStore, part: str) -> None:
    store.put(part, (store.get(part) or b"")[:-1] + b"x")
    with pytest.raises(
        StoreError, match=r"deploy-400-1-1-0\.parquet: this part is damaged \(its SHA-256 is not"
    ):
        read(store)


def test_columns_that_an_older_version_did_not_have_are_null(store: FolderStore, part: str) -> None:
    older = pa.parquet.read_table(pa.BufferReader(store.get(part))).drop_columns(["deployed_s"])
    rewrite(store, part, older)
    assert read(store)["deployed_s"].to_list() == [None] * 3
    assert read(store)["vm"].to_list() == [row["vm"] for row in deploys(3)]


def test_a_part_of_a_newer_version_is_refused(store: FolderStore, part: str) -> None:
    table = pa.parquet.read_table(pa.BufferReader(store.get(part)))
    rewrite(store, part, table.replace_schema_metadata({"schema_version": "99"}))
    with pytest.raises(
        StoreError, match=r"a newer virtscale wrote this part \(schema 99, this one knows 1\)"
    ):
        read(store)
