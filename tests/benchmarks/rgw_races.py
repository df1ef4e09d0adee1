"""Two writers of one batch, and 50 kills with a reader that reads all the while. For `make prove-rgw`."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from infra.errors import InUse, VirtscaleError
from infra.results.commits import read_commits
from infra.results.lazy import scan_lazy
from infra.results.open import open_store
from infra.results.port import Cell, ObjectStore
from infra.results.read import scan
from infra.results.run_results import RunAttempt, RunResults, open_results
from tasks.records import TABLES
from tests.benchmarks.prove_kills import RUN_ID
from tests.benchmarks.rgw_runs import (
    BUCKET,
    Proof,
    Row,
    run_whole,
    say,
    started,
    undisturbed,
    unequal,
    words_of,
)

AT_ONCE = 2
PAUSE_S = 0.2
"""Between two looks of the reader: it is not to take the time of those who write."""
LANES_EVERY = 5
"""Of so many kills one is of a run whose stages go side by side, as those of large runs do."""


def race(proof: Proof, rounds: int) -> list[Row]:
    """Two writers begin the same attempt and commit it at the same moment, `rounds` times."""
    barrier = threading.Barrier(2, timeout=120)

    def write(machine: str) -> list[bool]:
        results, won = _results(open_store(f"s3://{BUCKET}/race"), proof.folder / machine), []
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
    return [
        Row(
            f"two writers commit the same batch at the same moment, {rounds} rounds",
            "one wins, the other says so, no row twice",
            f"{single} rounds with one winner ({sum(one)} : {sum(two)}), {doubled} batches twice, "
            f"rows {'all of the winner' if whole else 'MIXED'}",
            single == rounds and doubled == 0 and whole,
        )
    ]


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


@dataclass
class Reader:
    """Scans the tables of runs that are being written, over and over."""

    stores: set[str] = field(default_factory=set)
    scans: int = 0
    batches: int = 0
    wrong: list[str] = field(default_factory=list)

    def read(self, until: threading.Event) -> None:
        """Until the end: every batch that is seen is whole."""
        while not until.wait(PAUSE_S):
            for store in list(self.stores):
                for table in ("vm_deploys", "vm_boots"):
                    try:
                        self._look(store, table)
                    except (VirtscaleError, pl.exceptions.PolarsError, OSError) as error:
                        self.wrong.append(f"{table}: {error}")

    def _look(self, store: str, table: str) -> None:
        opened = open_store(store, writable=False)
        found = scan_lazy(opened, [RUN_ID], table, TABLES[table]).group_by("batch", "repeat").len().collect()
        self.scans += 1
        self.batches += len(found)
        self.wrong += [
            f"{table}: {rows} rows of batch {batch}" for batch, _, rows in found.rows() if batch != rows
        ]

    def row(self) -> Row:
        """What it saw."""
        return Row(
            "a reader (`polars` scan in a loop) all the while",
            "never half a batch, never an error",
            f"{self.scans:,} scans, {self.batches:,} batches seen, {len(self.wrong)} not whole or errors"
            + (f" ({self.wrong[0]})" if self.wrong else ""),
            not self.wrong and self.batches > 0,
        )


@contextmanager
def reading() -> Iterator[Reader]:
    """A reader for the length of the block."""
    reader, until = Reader(), threading.Event()
    thread = threading.Thread(target=reader.read, args=(until,), name="reader")
    thread.start()
    try:
        yield reader
    finally:
        until.set()
        thread.join()


def kills(proof: Proof, count: int) -> list[Row]:
    """Kill -9 at a random moment of a run, resume it, compare it with an undisturbed one."""
    truth, took_s = undisturbed(proof)
    draw = random.Random(1)
    moments_s = [draw.uniform(0.15, 1.0) * took_s for _ in range(count)]
    with reading() as reader:

        def kill(number: int) -> tuple[bool, list[str]]:
            store, words = f"s3://{BUCKET}/kill-{number}", words_of(proof.profile)
            small_vms = 0 if number % LANES_EVERY == 0 else 10**9
            reader.stores.add(store)
            process = started(store, words, small_vms)
            process.join(moments_s[number])
            running = process.exitcode is None
            process.kill()
            process.join()
            run_whole(store, words, small_vms)
            found = unequal(truth, store)
            reader.stores.discard(store)
            say(f"kill {number + 1:2} after {moments_s[number]:5.1f} s: {', '.join(found) or 'equal'}")
            return running, found

        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(kill, range(count)))
    wrong = sum(1 for _, found in outcomes if found)
    lanes = len(range(0, count, LANES_EVERY))
    killed = Row(
        f"kill -9 at a random moment of a `{proof.profile}` run (deploys and boots), then resumed, {count} "
        f"times; in {lanes} the stages go side by side",
        "last complete attempts equal an undisturbed run's in a folder, row for row",
        f"{count - wrong} equal, {wrong} not; {sum(running for running, _ in outcomes)} were still running "
        f"when killed; {sum(map(len, truth.values())):,} rows each",
        wrong == 0,
    )
    return [killed, reader.row()]
