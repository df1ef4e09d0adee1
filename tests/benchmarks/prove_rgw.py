"""Proof on a real Ceph RGW: races, kills, outages. `make prove-rgw` writes docs/rgw.md.

    python -m tests.benchmarks.prove_rgw [ROUNDS KILLS OUTAGE_S PROFILE]

An RGW of its own is started, and wiped at the end. What is corrupt is in `make test-rgw`.
"""

import multiprocessing
import os
import platform
import random
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.__main__ import exit_code_of
from infra.errors import InUse
from infra.results.commits import read_commits
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from infra.results.port import Cell, ObjectStore
from infra.results.read import scan
from infra.results.run_results import RunAttempt, RunResults, open_results
from infra.results.s3_client import connect
from infra.rgw import daemons
from infra.rgw.configuration import Gateway
from infra.settings import s3
from tasks.records import TABLES
from tests.benchmarks.prove_kills import RUN_ID, differences, tables
from tests.store.fault_proxy import PASS, RESET, Answer, Proxy, proxy_to

BUCKET = "proof"
PAGE = Path(__file__).parents[2] / "docs" / "rgw.md"


@dataclass(frozen=True)
class Row:
    """One line of the page."""

    what: str
    asked: str
    seen: str
    holds: bool


STAGES = "preflight,golden-image,deploy,boot,report,clean"
# Forked from a process that has only imported: a kill is as real, and costs a third of the time.
_FORKS = multiprocessing.get_context("forkserver")


def take(store: Path | str, profile: str, environment: dict[str, str]) -> None:
    """A run as a person would type it, in a process of its own."""
    os.environ.update(environment)
    options = ["--no-prefect", "--profile", profile, "--stages", STAGES, "--run-id", RUN_ID, "--seed", "7"]
    _last_run().parent.mkdir(parents=True, exist_ok=True)
    with _last_run().open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(exit_code_of(["run", *options, "--store", str(store)]))


def _last_run() -> Path:
    return Path(os.environ["VIRTSCALE_STATE"]) / "last-run.txt"


def started(store: Path | str, profile: str) -> ForkServerProcess:
    """A run that goes on; the server it is forked from may be older than our environment."""
    mine = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "VIRTSCALE_"))}
    process = _FORKS.Process(target=take, args=(store, profile, mine))
    process.start()
    return process


def run_whole(store: Path | str, profile: str) -> float:
    """Run to the end; returns the seconds it took."""
    began_s = time.monotonic()
    process = started(store, profile)
    process.join()
    if process.exitcode not in {0, 3}:
        raise SystemExit(f"exit {process.exitcode}: {_last_run().read_text()}")
    return time.monotonic() - began_s


def run_killed(store: Path | str, profile: str, after_s: float) -> bool:
    """Run and kill -9 after a while; returns whether it was still running."""
    process = started(store, profile)
    process.join(after_s)
    running = process.exitcode is None
    process.kill()
    process.join()
    return running


def say(line: str) -> None:
    print(line, flush=True)


def race(rounds: int, folder: Path) -> Row:
    """Two writers begin the same attempt and commit it at the same moment, `rounds` times."""
    barrier = threading.Barrier(2, timeout=120)

    def write(machine: str) -> list[bool]:
        results, won = _results(open_store(f"s3://{BUCKET}/race"), folder / machine), []
        for i in range(rounds):
            barrier.wait()
            attempt = results.begin(Cell("deploy", f"{i}"))
            attempt.add("vm_deploys", [_row(machine, vm) for vm in range(3)])
            barrier.wait()
            won.append(_is_done(attempt))
        return won

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(write, ["one", "two"])
    store = open_store(f"s3://{BUCKET}/race")
    frame = scan(store, RUN_ID, "vm_deploys", TABLES["vm_deploys"], "all")
    whole = frame["reason"].to_list() == [who for won in one for who in 3 * ["one" if won else "two"]]
    single = sum(a + b == 1 for a, b in zip(one, two, strict=True))
    doubled = len(read_commits(store, RUN_ID)) - rounds
    return Row(
        f"two writers commit the same batch at the same moment, {rounds} rounds",
        "one wins, the other says so, no row twice",
        f"{single} rounds with one winner ({sum(one)} : {sum(two)}), {doubled} batches twice, "
        f"rows {'all of the winner' if whole else 'MIXED'}",
        single == rounds and doubled == 0 and whole,
    )


def _row(machine: str, vm: int) -> dict[str, object]:
    return {"batch": 3, "vm": f"vm-{vm}", "state": "ok", "reason": machine, "attempts": 1}


def _results(store: ObjectStore, spool: Path) -> RunResults:
    return open_results(store, RUN_ID, "virtual", {"vm_deploys": TABLES["vm_deploys"]}, spool)


def _is_done(attempt: RunAttempt) -> bool:
    try:
        attempt.commit({})
        return True
    except InUse:
        return False


def kills(count: int, profile: str, folder: Path) -> Row:
    """Kill -9 at a random moment of a run, resume it, compare it with an undisturbed one."""
    draw, wrong, caught = random.Random(1), 0, 0
    took_s = run_whole(folder / "undisturbed", profile)
    truth = tables(folder / "undisturbed")
    for kill in range(1, count + 1):
        store, moment_s = f"s3://{BUCKET}/kill-{kill}", draw.uniform(0.15, 1.0) * took_s
        caught += run_killed(store, profile, moment_s)
        run_whole(store, profile)
        found = differences(truth, tables(store))
        wrong += bool(found)
        say(f"kill {kill:2} after {moment_s:5.1f} s: {', '.join(found) or 'equal'}")
    return Row(
        f"kill -9 at a random moment of a `{profile}` run (deploys and boots), then resumed, {count} times",
        "last complete attempts equal an undisturbed run's in a folder, row for row",
        f"{count - wrong} equal, {wrong} not; {caught} were still running when killed; "
        f"{sum(map(len, truth.values())):,} rows each",
        wrong == 0,
    )


def outage(gateway: Gateway, away_s: float, profile: str) -> Row:
    """The gateway is stopped in the middle of a run and started again."""

    def off_and_on() -> None:
        daemons.end(gateway.folder, daemons.RGW, 20.0)
        time.sleep(away_s)
        daemons.start_gateway(gateway)

    return _disturbed(
        f"gateway stopped for {away_s:.0f} s in the middle of a `{profile}` run", profile, off_and_on
    )


def flaky(gateway: Gateway, bad_s: float, profile: str) -> Row:
    """Behind a proxy that answers 503 and resets connections for a while."""
    with proxy_to(gateway.endpoint) as proxy:
        before = os.environ["AWS_ENDPOINT_URL"]
        os.environ["AWS_ENDPOINT_URL"] = proxy.address
        try:
            what = f"503 and resets for {bad_s:.0f} s in the middle of a `{profile}` run"
            return _disturbed(what, profile, lambda: _break(proxy, bad_s))
        finally:
            os.environ["AWS_ENDPOINT_URL"] = before


def _break(proxy: Proxy, bad_s: float) -> None:
    draw = random.Random(2)
    proxy.plan = lambda method, path: draw.choice([Answer(503, "SlowDown"), RESET])
    time.sleep(bad_s)
    proxy.plan = lambda method, path: PASS


def _disturbed(what: str, profile: str, disturb: Callable[[], None]) -> Row:
    store = f"s3://{BUCKET}/disturbed-{zlib.crc32(what.encode())}"
    process = started(store, profile)
    while not _has_measured(store):
        time.sleep(0.2)
    disturb()
    process.join()
    told = _last_run().read_text()
    again = "" if process.exitcode in {0, 3} else f", exit {process.exitcode}, resumed"
    if again:
        run_whole(store, profile)
    opened = open_store(store)
    sessions = (read_manifest(opened, RUN_ID) or {})["sessions"]
    away_s = sum((each["upload"] or {}).get("away_s", 0) for each in sessions)
    commits = [each for each in read_commits(opened, RUN_ID) if each.complete]
    attempts = {each.attempt for each in commits if each.cell.stage in {"deploy", "boot"}}
    waited = any(line.startswith("upload") for line in told.splitlines())
    return Row(
        what,
        "the run completes, nothing is measured twice",
        f"away {away_s:.0f} s as seen by uploads{', waited for at the end' if waited else ''}{again}; "
        f"{len(commits)} commits, attempts {sorted(attempts)}",
        attempts == {1} and not again,
    )


def _has_measured(store: str) -> bool:
    commits = read_commits(open_store(store, writable=False), RUN_ID)
    return any(each.cell.stage == "deploy" and each.complete for each in commits)


def page(rows: list[Row], version: str, took_s: float) -> str:
    """The page of docs."""
    head = (
        "# Proven on a real Ceph RGW\n\n"
        f"By `make prove-rgw` ({took_s / 60:.0f} min, {os.cpu_count()} cores, {platform.machine()})\n"
        f"against {version}: monitor, OSD (bluestore) and gateway on one machine.\n"
        "Corrupt and missing objects, listing, conditions and refusals: `make test-rgw`, the same tests\n"
        "as over a folder and moto (tests/store).\n\n"
        "| what | asked | seen | holds |\n| --- | --- | --- | --- |\n"
    )
    return head + "".join(
        f"| {r.what} | {r.asked} | {r.seen} | {'yes' if r.holds else 'NO'} |\n" for r in rows
    )


@contextmanager
def proof_gateway(folder: Path) -> Iterator[Gateway]:
    """An RGW in a folder of its own; the environment leads to it."""
    gateway = daemons.up(Gateway(folder / "g", 0))
    os.environ.update(gateway.environment() | {"VIRTSCALE_STATE": str(folder / "state")})
    try:
        connect(s3()).create_bucket(Bucket=BUCKET)
        yield gateway
    finally:
        daemons.down(gateway.folder, wipe=True)


def prove(rounds: int, count: int, away_s: float, profile: str) -> bool:
    """Everything; writes the page when all was asked for."""
    began_s, rows = time.monotonic(), []
    with TemporaryDirectory(prefix="rgw-") as name, proof_gateway(Path(name)) as gateway:
        folder = Path(name)
        parts: list[Callable[[], Row]] = [
            lambda: race(rounds, folder),
            lambda: kills(count, profile, folder),
            lambda: outage(gateway, away_s, profile),
            lambda: flaky(gateway, away_s, profile),
        ]
        for part in parts:
            rows.append(part())
            say(f"{'holds' if rows[-1].holds else 'FAILS'}: {rows[-1].what}: {rows[-1].seen}")
    version = subprocess.run(["radosgw", "--version"], capture_output=True, text=True, check=True).stdout
    PAGE.write_text(page(rows, " ".join(version.split()[:3]), time.monotonic() - began_s))
    return all(row.holds for row in rows)


if __name__ == "__main__":
    _FORKS.set_forkserver_preload(["flows.cli.run", "flows.study", "infra.results.s3", "tasks.report.page"])
    given = [*sys.argv[1:], *["200", "50", "60", "small"][len(sys.argv) - 1 :]]
    sys.exit(0 if prove(int(given[0]), int(given[1]), float(given[2]), given[3]) else 1)
