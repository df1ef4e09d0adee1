"""What results cost on a real Ceph RGW: `make bench-store` (an RGW of its own, wiped at the end).

The study's batches (14, of 24,600 VM records) are measured and wait to be stored; what is timed goes from
there until all of them are encoded, compressed (zstd), sent and acknowledged: through a run's store on RGW
and into a folder, and by plain boto3 and pyarrow. A run on virtual time is a few batches ahead of the store's
answers; one in real time waits for each before it goes on, so that nothing is uploaded while it measures.
Naive: one object per batch, and nothing else: what is not stored is lost by a kill. Careful, as a run is:
rows on the local disk first, and after the part one more object, with its SHA-256, that says that the batch
is whole.
"""

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from itertools import product, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from infra.results.commits import run_folders
from infra.results.open import open_store, spool_folder
from infra.results.port import Attempt, Cell, ObjectStore
from infra.results.run_results import open_results
from infra.results.s3_client import connect
from infra.results.uploads import upload_cost, uploading
from infra.settings import s3
from tasks.records import TABLES
from tests.benchmarks.rgw_runs import BUCKET, gateway_in

SIZES = (100, 200, 400, 800, 1600, 3200, 6000)
CELLS = [
    (stage, table, size)
    for stage, table in (("deploy", "vm_deploys"), ("boot", "vm_boots"))
    for size in SIZES
]
RECORDS = sum(size for _, _, size in CELLS)
ROUNDS = 25

Figures = dict[str, Any]


def rows_of(table: str, size: int) -> list[dict[str, Any]]:
    """Rows as a batch gives them: every duration another, its error beside it."""
    numbers = [field.name for field in TABLES[table] if pa.types.is_floating(field.type)]
    return [
        {
            "batch": size,
            "vm": f"run-d{size}-{i:04d}",
            "state": "ok",
            "attempts": 1,
            **{
                name: round(0.31 * i + 1.7 * n + (i * 7919 % 1000) / 999, 9) for n, name in enumerate(numbers)
            },
        }
        for i in range(size)
    ]


def ours(address: str, run_id: str, *, virtual_time: bool) -> Figures:
    """Commit batch by batch what is spooled; seconds until the store has the last."""
    store, folders = open_store(address), run_folders(run_id, TABLES)
    with uploading(store, run_id, folders, print, virtual_time=virtual_time) as uploads:
        attempts = _spooled(uploads, run_id)
        began_s = time.monotonic()
        for attempt in attempts:
            attempt.commit({"n": int(attempt.cell.cell)})
    return {"commit_s": time.monotonic() - began_s, **(upload_cost(uploads) or {})}


def _spooled(store: ObjectStore, run_id: str) -> list[Attempt]:
    attempts: list[Attempt] = []
    results = open_results(store, run_id, "virtual", TABLES, spool_folder(store, run_id))
    for stage, table, size in CELLS:
        attempts.append(results.begin(Cell(stage, str(size))))
        attempts[-1].add(table, rows_of(table, size))
    return attempts


def by_hand(run_id: str, copies: Path | None = None) -> Figures:
    """What a script would do; with a folder for `copies`, one that keeps what a run promises."""
    client, sent_bytes = connect(s3()), 0
    batches = [(f"{run_id}/{stage}-{size}", table, rows_of(table, size)) for stage, table, size in CELLS]
    kept = [_copy(copies / name, rows) for name, _, rows in batches] if copies else []
    began_s = time.monotonic()
    for (name, table, rows), copy in zip_longest(batches, kept):
        if copy:
            os.fsync(copy.fileno())
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=_loose(table)), body, compression="zstd")
        client.put_object(Bucket=BUCKET, Key=f"{name}.parquet", Body=body.getvalue())
        if copy:
            told = orjson.dumps({"n": len(rows), "sha256": hashlib.sha256(body.getvalue()).hexdigest()})
            client.put_object(Bucket=BUCKET, Key=f"{name}.json", Body=told)
            copy.close()
        sent_bytes += len(body.getvalue())
    return {"commit_s": time.monotonic() - began_s, "sent_bytes": sent_bytes}


def _copy(path: Path, rows: list[dict[str, Any]]) -> BinaryIO:
    """Rows on this machine, as a run has them before its batch ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("wb")
    file.write(orjson.dumps(rows))
    file.flush()
    return file


def _loose(table: str) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in TABLES[table]])


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def in_turns(folder: Path) -> Iterator[str]:
    """Every contender once a round, interleaved; the medians."""
    contenders: dict[str, Callable[[int], Figures]] = {
        "RGW": lambda i: ours(f"s3://{BUCKET}/bench", f"r{i}", virtual_time=True),
        "RGW, each awaited": lambda i: ours(f"s3://{BUCKET}/bench", f"w{i}", virtual_time=False),
        "folder": lambda i: ours(str(folder / "store"), f"r{i}", virtual_time=True),
        "naive": lambda i: by_hand(f"naive{i}"),
        "careful": lambda i: by_hand(f"careful{i}", folder / "copies"),
    }
    found: dict[str, list[Figures]] = {name: [] for name in contenders}
    for i in range(ROUNDS):
        for name, contender in contenders.items():
            found[name].append(contender(i))
    for name, figures in found.items():
        seconds = sorted(each["commit_s"] for each in figures)
        spread = f"{seconds[0]:.2f} to {seconds[-1]:.2f}"
        yield f"{name:<17} {RECORDS:,} records committed in {median(seconds):6.2f} s ({spread} s, n {ROUNDS})"
    for name, peer in product(("RGW", "RGW, each awaited"), ("naive", "careful", "folder")):
        ratios = sorted(a["commit_s"] / b["commit_s"] for a, b in zip(found[name], found[peer], strict=True))
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        yield f"{name} against {peer}: {median(ratios):.2f} of its wall time ({spread}, {ROUNDS} pairs)"
    yield f"bytes of parts: naive and careful {found['naive'][-1]['sent_bytes']:,}"
    yield _traffic(found["RGW"][-1])


def _traffic(last: Figures) -> str:
    sent = last["sent_bytes"]
    store = open_store(f"s3://{BUCKET}/bench")
    parts = sorted(len(store.get(key) or b"") for key in store.keys("vm_") if f"run_id=r{ROUNDS - 1}/" in key)
    return (
        f"requests of a run: {last['requests']}; {sent:,} bytes sent, {sent / RECORDS:.1f} a record; "
        f"{len(parts)} parts of {parts[0]:,} to {parts[-1]:,}, together {sum(parts):,} bytes; "
        f"uploads {last['cpu_s']} s CPU, of it {last['behind_cpu_s']} s while no step waited"
    )


def main() -> None:
    """Print everything."""
    with TemporaryDirectory(prefix="rgw-") as name, gateway_in(Path(name)):
        for line in in_turns(Path(name)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
