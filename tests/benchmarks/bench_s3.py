"""What results cost on a real Ceph RGW: `make bench-store` (an RGW of its own, wiped at the end).

24,600 VM records in the study's batches: through a run's store on RGW, into a folder, and by plain boto3 and
pyarrow (one object per batch, no spool, no checksums, no commits). Then lists of 5 and of 500 runs.
"""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.results.commits import run_folders
from infra.results.manifest import write_manifest
from infra.results.open import open_store, spool_folder
from infra.results.port import Cell, ObjectStore
from infra.results.run_results import open_results
from infra.results.s3_client import connect
from infra.results.uploads import upload_cost, uploading
from infra.settings import s3
from tasks.records import TABLES
from tests.benchmarks.prove_rgw import BUCKET, proof_gateway

SIZES = (100, 200, 400, 800, 1600, 3200, 6000)
CELLS = [
    (stage, table, size)
    for stage, table in (("deploy", "vm_deploys"), ("boot", "vm_boots"))
    for size in SIZES
]
RECORDS = sum(size for _, _, size in CELLS)
ROUNDS = 3

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


def naive(run_id: str) -> Figures:
    """What a script would do."""
    client, taken_s, put_s = connect(s3()), 0.0, 0.0
    for stage, table, size in CELLS:
        rows = rows_of(table, size)
        began_s = time.monotonic()
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=_loose(table)), body, compression="zstd")
        putting_s = time.monotonic()
        client.put_object(Bucket=BUCKET, Key=f"{run_id}/{stage}-{size}.parquet", Body=body.getvalue())
        put_s += time.monotonic() - putting_s
        taken_s += time.monotonic() - began_s
    return {"commit_s": taken_s, "waited_s": put_s}


def _loose(table: str) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in TABLES[table]])


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def in_turns(folder: Path) -> Iterator[str]:
    """Every contender once a round, interleaved; the medians."""
    contenders: dict[str, Callable[[int], Figures]] = {
        "RGW": lambda i: ours(f"s3://{BUCKET}/bench", f"r{i}"),
        "folder": lambda i: ours(str(folder / "store"), f"r{i}"),
        "naive on RGW": lambda i: naive(f"naive{i}"),
    }
    found: dict[str, list[Figures]] = {name: [] for name in contenders}
    for i in range(ROUNDS):
        for name, contender in contenders.items():
            found[name].append(contender(i))
    for name, figures in found.items():
        seconds = sorted(each["commit_s"] for each in figures)
        spread = f"{seconds[0]:.2f} to {seconds[-1]:.2f}"
        yield f"{name:<14} {RECORDS:,} records committed in {median(seconds):6.2f} s ({spread} s, n {ROUNDS})"
    ratio = median([a["commit_s"] / b["commit_s"] for a, b in _pairs(found, "RGW", "naive on RGW")])
    yield f"RGW against naive: {ratio:.2f} of its wall time (median of pairs)"
    ours_s, naive_s = (median([each["waited_s"] for each in found[name]]) for name in ("RGW", "naive on RGW"))
    yield f"RGW against naive, writes alone: {ours_s:.2f} s (28 objects) against {naive_s:.2f} s (14 objects)"
    ratio = median([a["commit_s"] / b["commit_s"] for a, b in _pairs(found, "RGW", "folder")])
    yield f"RGW against folder: {ratio:.2f} of its wall time (median of pairs)"
    yield _traffic(found["RGW"][-1])


def _pairs(found: dict[str, list[Figures]], one: str, two: str) -> list[tuple[Figures, Figures]]:
    return list(zip(found[one], found[two], strict=True))


def _traffic(last: Figures) -> str:
    sent = last["sent_bytes"]
    store = open_store(f"s3://{BUCKET}/bench")
    parts = sorted(len(store.get(key) or b"") for key in store.keys("vm_") if f"run_id=r{ROUNDS - 1}/" in key)
    return (
        f"requests of a run: {last['requests']}; {sent:,} bytes sent, {sent / RECORDS:.1f} a record; "
        f"{len(parts)} parts of {parts[0]:,} to {parts[-1]:,} bytes; "
        f"uploads {last['cpu_s']} s CPU, of it {last['behind_cpu_s']} s while the run went on"
    )


LIST = """
import sys
from flows.outcome import peak_rss_mib
from infra.results.manifest import read_manifests
from infra.results.open import open_store
import time
store = open_store(sys.argv[1], writable=False)
began_s = time.monotonic()
found = read_manifests(store)
print(len(found), round(time.monotonic() - began_s, 2), peak_rss_mib(), sum(store.traffic.requests.values()))
"""


def lists() -> Iterator[str]:
    """A list of many runs against a list of few, each in a process of its own."""
    manifest = {"schema": 1, "profile": {"name": "x" * 2000}, "sessions": [{"a": 1}] * 5}
    for count in (5, 500):
        address = f"s3://{BUCKET}/runs-{count}"
        store = open_store(address)
        for i in range(count):
            write_manifest(store, f"run-{i}", manifest)
        command = [sys.executable, "-c", LIST, address]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        runs, took_s, rss_mib, requests = done.stdout.split()
        yield f"list of {runs} runs: {took_s} s, peak {rss_mib} MiB, {requests} requests"


def main() -> None:
    """Print everything."""
    with TemporaryDirectory(prefix="rgw-") as name, proof_gateway(Path(name)):
        for part in (in_turns(Path(name)), lists()):
            for line in part:
                print(line, flush=True)


if __name__ == "__main__":
    main()
