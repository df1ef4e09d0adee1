"""What results cost on a real Ceph RGW: `make bench-store` (an RGW of its own, wiped at the end).

24,600 VM records in the study's batches: through a run's store on RGW, into a folder, and by plain boto3 and
pyarrow in two ways. Naive: one object per batch, and nothing else: what is not stored is lost by a kill.
Careful, as a run is: rows on the local disk first, and after the part one more object, with its SHA-256,
that says that the batch is whole.
"""

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from infra.results.commits import run_folders
from infra.results.open import open_store, spool_folder
from infra.results.port import Cell, ObjectStore
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
ROUNDS = 5

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


def ours(address: str, run_id: str) -> Figures:
    """Spool, then commit, batch by batch; seconds of the commits alone, and of all."""
    store = open_store(address)
    began_s = time.monotonic()
    with uploading(store, run_id, run_folders(run_id, TABLES), print) as uploads:
        commit_s = _committed(uploads, run_id)
        cost = upload_cost(uploads) or {}
    return {"all_s": time.monotonic() - began_s, "commit_s": commit_s, **cost}


def _committed(store: ObjectStore, run_id: str) -> float:
    results, commit_s = open_results(store, run_id, "served", TABLES, spool_folder(store, run_id)), 0.0
    for stage, table, size in CELLS:
        attempt = results.begin(Cell(stage, str(size)))
        attempt.add(table, rows_of(table, size))
        began_s = time.monotonic()
        attempt.commit({"n": size})
        commit_s += time.monotonic() - began_s
    return commit_s


def by_hand(run_id: str, copies: Path | None = None) -> Figures:
    """What a script would do; with a folder for `copies`, one that keeps what a run promises."""
    client, taken_s, put_s, sent_bytes = connect(s3()), 0.0, 0.0, 0
    for stage, table, size in CELLS:
        rows, name = rows_of(table, size), f"{run_id}/{stage}-{size}"
        copy = _copy(copies / name, rows) if copies else None
        began_s = time.monotonic()
        if copy:
            os.fsync(copy.fileno())
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=_loose(table)), body, compression="zstd")
        putting_s = time.monotonic()
        client.put_object(Bucket=BUCKET, Key=f"{name}.parquet", Body=body.getvalue())
        if copy:
            told = orjson.dumps({"n": size, "sha256": hashlib.sha256(body.getvalue()).hexdigest()})
            client.put_object(Bucket=BUCKET, Key=f"{name}.json", Body=told)
            copy.close()
        put_s += time.monotonic() - putting_s
        taken_s += time.monotonic() - began_s
        sent_bytes += len(body.getvalue())
    return {"commit_s": taken_s, "waited_s": put_s, "sent_bytes": sent_bytes}


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
        "RGW": lambda i: ours(f"s3://{BUCKET}/bench", f"r{i}"),
        "folder": lambda i: ours(str(folder / "store"), f"r{i}"),
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
        yield f"{name:<8} {RECORDS:,} records committed in {median(seconds):6.2f} s ({spread} s, n {ROUNDS})"
    for peer in ("naive", "careful", "folder"):
        ratios = sorted(a["commit_s"] / b["commit_s"] for a, b in zip(found["RGW"], found[peer], strict=True))
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        yield f"RGW against {peer}: {median(ratios):.2f} of its wall time ({spread}, {ROUNDS} pairs)"
    waits = {name: median([each["waited_s"] for each in found[name]]) for name in ("RGW", "naive", "careful")}
    yield "writes alone, s: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in waits.items())
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
