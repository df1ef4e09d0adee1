"""Rows of a deploy batch, and a table to read them back from."""

from typing import Any

import polars as pl

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
