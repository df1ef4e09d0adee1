"""A bucket that holds many runs: what a trend and a list of them cost. For `make prove-rgw`."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import orjson

from infra.results.manifest import manifest_key
from infra.results.open import open_store
from infra.results.port import ObjectStore
from tests.benchmarks.prove_kills import RUN_ID
from tests.benchmarks.rgw_runs import BUCKET, Proof, Row, run_whole, words_of

FEW, MANY, LATEST = 20, 100, 10
MOST_TREND_S = 10.0
LISTED = (5, 500)
MOST_RSS = 1.1

TREND = """
import sys, time
began_s = time.monotonic()
from infra.results.open import open_store
from tasks.trending import read_trend, write_trend
store = open_store(sys.argv[1], writable=False)
found = read_trend(store, last=int(sys.argv[2]))
write_trend(store, found, sys.argv[1])
print(len(found.runs), time.monotonic() - began_s, sum(store.traffic.requests.values()))
"""
LIST = """
import sys, time
from flows.cli.runs import lines_of
from flows.cost import peak_rss_mib
from infra.results.open import open_store
store = open_store(sys.argv[1], writable=False)
began_s = time.monotonic()
found = lines_of(store)
print(len(found), time.monotonic() - began_s, peak_rss_mib(), sum(store.traffic.requests.values()))
"""


def trends(proof: Proof) -> list[Row]:
    """A trend of 100 runs, and of the latest 10 of 20 and of 100."""
    model = proof.folder / "model"
    run_whole(model, words_of(proof.profile))
    addresses = {count: f"s3://{BUCKET}/trend-{count}" for count in (FEW, MANY)}
    for count, address in addresses.items():
        copied(open_store(str(model)), open_store(address), count)
    shown, took_s, requests = asked(TREND, addresses[MANY], "0")
    all_of_few = asked(TREND, addresses[FEW], "0")[2]
    latest = [asked(TREND, address, str(LATEST))[2] for address in addresses.values()]
    stored = len(open_store(addresses[MANY], writable=False).keys(""))
    return [
        Row(
            f"`trend` over {MANY} runs in the bucket ({stored:,} objects)",
            f"< {MOST_TREND_S:.0f} s, requests in proportion to what is shown",
            f"{took_s:.1f} s; {requests:.0f} requests for {shown:.0f} runs, {all_of_few:.0f} for {FEW}; "
            f"for the latest {LATEST} of {FEW} {latest[0]:.0f}, of {MANY} {latest[1]:.0f}",
            took_s < MOST_TREND_S and requests < 3 * MANY and latest[1] <= 1.2 * latest[0],
        )
    ]


def copied(model: ObjectStore, store: ObjectStore, count: int) -> None:
    """A run `count` times, an hour apart; the latest ones began after the others were written."""
    keys = [key for key in model.keys("") if not key.startswith(("_spool/", "_states/")) and RUN_ID in key]
    bodies = {key: model.get(key) or b"" for key in keys}
    manifest = orjson.loads(bodies.pop(manifest_key(RUN_ID)))

    def put(number: int) -> None:
        run_id = f"run-{number}"
        for key, body in bodies.items():
            new = body.replace(RUN_ID.encode(), run_id.encode()) if key.startswith("_commits/") else body
            store.put(key.replace(RUN_ID, run_id), new)
        began = datetime.now(UTC) + timedelta(hours=number - count + LATEST + 1)
        whole = {**manifest, "run_id": run_id, "started_at": began.isoformat()}
        store.put(manifest_key(run_id), orjson.dumps(whole))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(count - LATEST)))
        list(pool.map(put, range(count - LATEST, count)))


def lists(proof: Proof) -> list[Row]:
    """A list of many runs against a list of few, each in a process of its own."""
    model = proof.folder / "listed"
    run_whole(model, words_of(proof.profile))
    manifest = orjson.loads((model / manifest_key(RUN_ID)).read_bytes())
    figures = []
    for count in LISTED:
        address = f"s3://{BUCKET}/runs-{count}"
        store = open_store(address)
        for i in range(count):
            store.put(manifest_key(f"run-{i}"), orjson.dumps({**manifest, "run_id": f"run-{i}"}))
        figures.append(asked(LIST, address))
    (_, _, few_mib, _), (shown, took_s, many_mib, requests) = figures
    return [
        Row(
            f"`virtscale runs` over {LISTED[1]} runs against {LISTED[0]}",
            f"resident memory at most {MOST_RSS} times as large",
            f"{shown:.0f} runs in {took_s:.1f} s and {requests:.0f} requests; {many_mib:.1f} MiB against "
            f"{few_mib:.1f} MiB, {many_mib / few_mib:.2f} times",
            many_mib <= MOST_RSS * few_mib,
        )
    ]


def asked(script: str, *words: str) -> list[float]:
    """The numbers that a script prints, in a process of its own."""
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return [float(word) for word in done.stdout.split()]
