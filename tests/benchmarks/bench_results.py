"""Records: spooled and committed by the results store, against one plain Parquet file of the same rows.

The plain way keeps everything in memory until the end, so a killed process loses it all; ours has each frame
on its way to the disk when `add` returns, and commits with hashes and one conditional put.
"""

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.results.open import open_store, spool_folder
from infra.results.port import Cell
from infra.results.run_results import open_results
from tasks.records import TABLES
from tests.benchmarks.bench_figures import Figure, in_turns

ROWS = 6000
FRAME = 50
ROUNDS = 5
TABLE = "vm_boots"
STEP_S = 0.125
Row = dict[str, Any]


def results_figures() -> list[Figure]:
    """Milliseconds for 6,000 boot records."""
    rows = _rows()
    mine, theirs = in_turns(partial(_spooled, rows), partial(_plain, rows), ROUNDS)
    columns = len(TABLES[TABLE])
    n = f"n {ROUNDS} x {ROWS:,} rows of {columns} columns, {FRAME} a frame, minimum of wall"
    what = "results: spool and commit"
    return [Figure(what, min(mine) * 1e3, "ms", min(theirs) * 1e3, "plain Parquet file", n)]


def _rows() -> list[Row]:
    numbers = [field.name for field in TABLES[TABLE] if field.type == pa.float64()]
    keys = {"world": "virtual", "batch": ROWS, "repeat": 1, "attempt": 1, "state": "ok", "attempts": 1}
    return [
        {
            **keys,
            "vm": f"vm-{i:05}",
            "node": f"worker-{i % 129:03}",
            "boot_ordinal": 1,
            **{name: i / 7 + j * STEP_S for j, name in enumerate(numbers)},
        }
        for i in range(ROWS)
    ]


def _spooled(rows: list[Row]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        results = open_results(store, "bench", "virtual", TABLES, spool_folder(store, "bench"))
        added = [{key: value for key, value in row.items() if key not in _ADDED_BY_STORE} for row in rows]
        began_s = time.perf_counter()
        attempt = results.begin(Cell("boot", str(ROWS)))
        for first in range(0, ROWS, FRAME):
            attempt.add(TABLE, added[first : first + FRAME])
        attempt.commit({"n": ROWS})
        took_s = time.perf_counter() - began_s
        results.close()
    return took_s


_ADDED_BY_STORE = ("world", "repeat", "attempt")


def _plain(rows: list[Row]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        with (Path(folder) / "rows.parquet").open("wb") as file:
            pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[TABLE]), file)
            file.flush()
            os.fsync(file.fileno())
        return time.perf_counter() - began_s
