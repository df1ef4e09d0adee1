"""Runs on a real Ceph RGW, as a person would type them: whole, killed, disturbed. For `make prove-rgw`."""

import hashlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import polars as pl

from flows import lanes
from flows.__main__ import exit_code_of
from infra.results.commits import read_commits
from infra.results.open import open_store
from infra.results.port import Commit
from infra.results.run_results import ENDED_AT
from infra.results.s3_client import connect
from infra.rgw import daemons
from infra.rgw.configuration import Gateway
from infra.settings import s3
from tests.benchmarks.prove_kills import RUN_ID, differences, tables

BUCKET = "proof"
STAGES = "preflight,golden-image,deploy,boot,report,clean"
# Forked from a process that has only imported: a kill is as real, and costs a third of the time.
FORKS = multiprocessing.get_context("forkserver")
PRELOADED = ["flows.cli.run", "flows.study", "infra.results.s3", "tasks.report.page"]


@dataclass(frozen=True)
class Row:
    """One line of the page."""

    what: str
    asked: str
    seen: str
    holds: bool


class Proof(NamedTuple):
    """What a section works with: a gateway that the environment leads to, a folder of its own, a profile."""

    gateway: Gateway
    folder: Path
    profile: str


@contextmanager
def gateway_in(folder: Path, size_gib: int = 16) -> Iterator[Gateway]:
    """An RGW in a folder of its own with an empty bucket; the environment leads to it until the end."""
    before = dict(os.environ)
    gateway = daemons.up(Gateway(folder / "g", 0, size_gib=size_gib))
    os.environ.update(gateway.environment() | {"VIRTSCALE_STATE": str(folder / "state")})
    try:
        connect(s3()).create_bucket(Bucket=BUCKET)
        yield gateway
    finally:
        daemons.down(gateway.folder, wipe=True)
        os.environ.clear()
        os.environ.update(before)


def say(line: str) -> None:
    print(line, flush=True)


def told(store: Path | str) -> Path:
    """What the last run on a store printed."""
    return (
        Path(os.environ["VIRTSCALE_STATE"]) / f"told-{hashlib.sha256(str(store).encode()).hexdigest()[:12]}"
    )


def take(store: Path | str, words: tuple[str, ...], environment: dict[str, str], small_vms: int) -> None:
    """A run in a process of its own; from how many VMs on its stages go side by side is ours to say."""
    os.environ.update(environment)
    lanes.SMALL_VMS = small_vms
    told(store).parent.mkdir(parents=True, exist_ok=True)
    with told(store).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(exit_code_of(["run", "--no-prefect", "--seed", "7", *words, "--store", str(store)]))


def words_of(profile: str, stages: str = STAGES) -> tuple[str, ...]:
    """The options of a run."""
    return ("--profile", profile, "--stages", stages, "--run-id", RUN_ID)


def started(store: Path | str, words: tuple[str, ...], small_vms: int = lanes.SMALL_VMS) -> ForkServerProcess:
    """A run that goes on; the server it is forked from may be older than our environment."""
    names = ("AWS_", "VIRTSCALE_", "KUBECONFIG")
    mine = {name: value for name, value in os.environ.items() if name.startswith(names)}
    process = FORKS.Process(target=take, args=(store, words, mine, small_vms))
    process.start()
    return process


def run_whole(store: Path | str, words: tuple[str, ...], small_vms: int = lanes.SMALL_VMS) -> float:
    """Run to the end; returns the seconds it took."""
    began_s = time.monotonic()
    process = started(store, words, small_vms)
    process.join()
    if process.exitcode not in {0, 3}:
        raise SystemExit(f"exit {process.exitcode}: {told(store).read_text()}")
    return time.monotonic() - began_s


def undisturbed(proof: Proof) -> tuple[dict[str, pl.DataFrame], float]:
    """The tables of an undisturbed run in a folder, and the seconds it took."""
    store = proof.folder / "undisturbed"
    took_s = run_whole(store, words_of(proof.profile))
    return tables(store), took_s


def disturbed(what: str, words: tuple[str, ...], disturb: Callable[[], None]) -> Row:
    """A run that is disturbed as soon as its first deploy is committed."""
    store = f"s3://{BUCKET}/{hashlib.sha256(what.encode()).hexdigest()[:8]}"
    process = started(store, words)
    until_measured(store)
    from_at = datetime.now(UTC)
    disturb()
    to_at = datetime.now(UTC)
    process.join()
    again = "" if process.exitcode in {0, 3} else f", exit {process.exitcode}, resumed"
    if again:
        run_whole(store, words)
    meanwhile = [each for each in measured(store) if from_at < ended_at(each) < to_at]
    return Row(
        what,
        "the run completes, nothing is measured twice",
        f"{len(meanwhile)} batches were measured meanwhile and stored afterwards{again}; of "
        f"{len(measured(store))} batches the attempts are {sorted(attempts(store))}",
        attempts(store) == {1} and not again and bool(meanwhile),
    )


def until_measured(store: str) -> None:
    """Wait until a deploy is committed."""
    while not any(each.cell.stage == "deploy" and each.complete for each in _commits(store)):
        time.sleep(0.1)


def attempts(store: str) -> set[int]:
    """The numbers of all attempts of measured batches."""
    return {each.attempt for each in measured(store)}


def measured(store: str) -> list[Commit]:
    """The commits of measured batches."""
    return [each for each in _commits(store) if each.cell.stage in {"deploy", "boot"}]


def ended_at(commit: Commit) -> datetime:
    """When a batch was measured, by the world's wall clock."""
    return datetime.fromisoformat(commit.summary[ENDED_AT])


def unequal(truth: dict[str, pl.DataFrame], store: str) -> list[str]:
    """Tables of a run that differ from the truth."""
    return differences(truth, tables(store))


def _commits(store: str) -> list[Commit]:
    return read_commits(open_store(store, writable=False), RUN_ID)
