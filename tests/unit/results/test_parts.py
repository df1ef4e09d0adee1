"""Parts: rows are checked as they come, and the same rows are the same bytes."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.results.folder import FolderStore
from infra.results.parts import ROWS_PER_PART, by_column, by_row, extend, parquet_of, table_of
from infra.results.run_results import RunResults
from tasks.records import SCHEMA_VERSION, TABLES
from tests.unit.results.rows import CELL, deploys, read

NO_ZONE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
ROOT = Path(__file__).parents[3]
HASH_OF_A_PART = """
import hashlib
from infra.results.parts import by_column, parquet_of
from tasks.records import TABLES
from tests.unit.results.rows import deploys
rows = [{**row, "world": "virtual", "repeat": 1, "attempt": 1} for row in deploys(500)]
print(hashlib.sha256(parquet_of(TABLES["vm_deploys"], by_column(rows))).hexdigest())
"""


def row(**changes: Any) -> dict[str, Any]:
    return deploys(1)[0] | changes


@pytest.mark.parametrize(
    ("table", "given", "says"),
    [
        ("vm_deploy", row(), "table vm_deploy: there is no such table"),
        ("vm_deploys", row(deployed=1.0), "table vm_deploys: column deployed is not in its schema"),
        ("vm_deploys", row(vm=None), "table vm_deploys: column vm is required and is null"),
        ("vm_deploys", {"vm": "a", "state": "ok"}, "table vm_deploys: column batch is required and is null"),
        ("vm_deploys", row(world=None), "table vm_deploys: column world is required and is null"),
        ("vm_deploys", row(deployed_s="1"), "table vm_deploys: column deployed_s takes float, not '1'"),
        (
            "vm_deploys",
            row(deployed_s=float("nan")),
            "table vm_deploys: column deployed_s takes finite numbers, not nan",
        ),
        ("vm_deploys", row(batch=True), "table vm_deploys: column batch takes int, not True"),
        ("vm_deploys", row(batch=400.0), "table vm_deploys: column batch takes int, not 400.0"),
        ("vm_deploys", row(deployed_s=False), "table vm_deploys: column deployed_s takes float, not False"),
        (
            "objects",
            {"kind": "Pod", "name": "a", "intended_at": NO_ZONE},
            "with their time zone",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_table_and_column(
    results: RunResults, table: str, given: dict[str, Any], says: str
) -> None:
    attempt = results.begin(CELL)
    with pytest.raises(ValueError, match=re.escape(says)):
        attempt.add(table, [row(), given] if table == "vm_deploys" else [given])
    assert attempt.commit({}).parts == {}


def test_every_table_of_the_records_can_be_stored() -> None:
    assert [table_of(name, schema).name for name, schema in TABLES.items()] == list(TABLES)


def test_a_column_of_a_kind_that_no_record_uses_is_refused() -> None:
    with pytest.raises(ValueError, match="column a has the type binary"):
        table_of("t", pa.schema([("a", pa.binary())]))


def test_world_repeat_and_attempt_are_filled_in_where_they_are_not_given(
    results: RunResults, store: FolderStore
) -> None:
    attempt = results.begin(CELL._replace(repeat=2))
    attempt.add("vm_deploys", [row(), row(repeat=7, world="served")])
    attempt.add("objects", [{"kind": "Pod", "name": "a"}])
    attempt.commit({})
    assert read(store).select("world", "repeat", "attempt").rows() == [("virtual", 2, 1), ("served", 7, 1)]
    assert read(store, "objects")["world"].to_list() == ["virtual"]


def test_the_same_rows_are_the_same_bytes_in_any_process() -> None:
    printed = [
        subprocess.check_output(
            [sys.executable, "-c", HASH_OF_A_PART], cwd=ROOT, env={"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]


def test_a_part_keeps_the_order_of_rows_and_says_the_version_of_its_schema() -> None:
    rows = [{**each, "world": "virtual", "repeat": 1, "attempt": 1} for each in reversed(deploys(9))]
    table = pq.read_table(pa.BufferReader(parquet_of(TABLES["vm_deploys"], by_column(rows))))
    assert table["vm"].to_pylist() == [each["vm"] for each in rows]
    assert table.schema.metadata[b"schema_version"] == str(SCHEMA_VERSION).encode()
    assert table.schema.equals(TABLES["vm_deploys"])


def test_rows_that_lack_columns_of_others_are_rows_again_with_nulls() -> None:
    columns = by_column([{"a": 1}, {"a": 2, "b": "x"}])
    extend(columns, by_column([{"c": 3}]))
    extend(columns, {})
    assert list(by_row(columns)) == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": "x", "c": None},
        {"a": None, "b": None, "c": 3},
    ]


def test_parts_are_cut_by_rows(results: RunResults, store: FolderStore) -> None:
    attempt = results.begin(CELL)
    seconds = [{"stage": "deploy", "batch": 400, "second": i} for i in range(2 * ROWS_PER_PART + 1)]
    attempt.add("observer", seconds[:10])
    attempt.add("observer", seconds[10:])
    parts = attempt.commit({}).parts["observer"]
    prefix = "observer/run_id=r/deploy-400-1-1-"
    expected = [ROWS_PER_PART, ROWS_PER_PART, 1]
    assert [(key, n) for key, n, _ in parts] == [(f"{prefix}{i}.parquet", n) for i, n in enumerate(expected)]
    assert read(store, "observer")["second"].to_list() == list(range(2 * ROWS_PER_PART + 1))


def test_values_come_back_as_they_were_given(results: RunResults, store: FolderStore) -> None:
    instant = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)
    elsewhere = instant.astimezone(timezone(timedelta(hours=5, minutes=30)))
    given = {"stage": "boot", "batch": 1, "n": 1, "n_ok": 1, "n_timeout": 0, "n_failed": 0, "n_lost": 0}
    attempt = results.begin(CELL)
    more = {
        "verdict": "degraded",
        "reasons": ["watch_gap: 1 s", "é"],
        "end_to_end_s": 0.1 + 0.2,
        "limit_s": 7200,
    }
    attempt.add("batches", [{**given, **more, "released_at": elsewhere}, {**given, "verdict": "valid"}])
    attempt.commit({})
    first, second = read(store, "batches").to_dicts()
    assert (first["released_at"], first["reasons"]) == (instant, ["watch_gap: 1 s", "é"])
    assert (first["end_to_end_s"], first["limit_s"]) == (0.1 + 0.2, 7200.0)
    assert [second[name] for name in more if name != "verdict"] == [None] * 3
