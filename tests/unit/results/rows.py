"""Rows of a deploy batch, and a table to read them back from."""

import hashlib
import json
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from infra.results.port import Cell, ObjectStore
from infra.results.read import Which, scan
from tasks.records import TABLES

CELL = Cell("deploy", "400")


def deploys(n: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"batch": 400, "vm": f"vm-{i:05}", "state": "ok", "attempts": 1, "deployed_s": i / 7, "source": None}
        for i in range(first, first + n)
    ]


def read(store: ObjectStore, table: str = "vm_deploys", which: Which = "last_complete") -> pl.DataFrame:
    return scan(store, "r", table, TABLES[table], which)


def rewrite(store: ObjectStore, part: str, table: pa.Table) -> None:
    """Put another table in the place of a part, and its hash in the commit."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.put(part, sink.getvalue().to_pybytes())
    commit = json.loads(store.get("_commits/r/deploy-400-1-1.json") or b"")
    sha256 = hashlib.sha256(sink.getvalue().to_pybytes()).hexdigest()
    commit["parts"]["vm_deploys"] = [[part, table.num_rows, sha256]]
    store.put("_commits/r/deploy-400-1-1.json", json.dumps(commit).encode())
