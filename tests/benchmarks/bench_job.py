"""The whole main job as a person would run it, and the report of the run that it leaves."""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from infra.cluster.virtual.saved_state import unpacked
from infra.errors import StoreError
from infra.results.open import open_store, spool_folder
from infra.results.port import ObjectStore
from infra.results.run_results import open_results
from tests.benchmarks.bench_figures import Figure, against_target, load

STAGES = "preflight,golden-image,deploy,boot,report,clean"
SEED = 7
RUN_ID = "bench"
WALL_TARGET_S = 60.0
RSS_TARGET_MIB = 1024.0
REPORT_TARGET_S = 5.0
REPORT_ROUNDS = 5


class Cost(NamedTuple):
    """What a process took from start to end, interpreter and imports included.

    Linux counts the parent's own peak into a child that it starts, so `rss_mib` is None when the child's does
    not stand out from it.
    """

    wall_s: float
    cpu_s: float
    rss_mib: float | None
    output: str


def cost_of(command: Sequence[str]) -> Cost:
    """Run to the end and say what that took; its output is kept, what it says on stderr is shown.

    Raises:
        CalledProcessError: it did not exit with 0.
    """
    began_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        output = process.stdout.read().decode() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - began_s
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    to_mib = 1024 if sys.platform != "darwin" else 1024**2
    rss_mib = used.ru_maxrss / to_mib if used.ru_maxrss > own else None
    return Cost(wall_s, used.ru_utime + used.ru_stime, rss_mib, output)


def job_command(store: Path) -> list[str]:
    """The main job into a store of its own."""
    options = ["--profile", "study", "--stages", STAGES, "--no-prefect", "--seed", str(SEED)]
    return [sys.executable, "-m", "flows", "run", *options, "--run-id", RUN_ID, "--store", str(store)]


def job_figures(store: Path) -> list[Figure]:
    """Wall, CPU and memory of the main job, and how many writes it simulated a CPU second."""
    before = load()
    cost = cost_of(job_command(store))
    n = f"n 1, load average {before} to {load()}"
    writes = simulated_writes(open_store(str(store)), RUN_ID)
    rate = f"{writes:,} writes to the virtual API server, {writes / cost.cpu_s:,.0f} a CPU second"
    figures = [
        against_target("main job: wall", cost.wall_s, "s", WALL_TARGET_S, n),
        against_target("main job: CPU, user and system", cost.cpu_s, "s", WALL_TARGET_S, f"{n}; {rate}"),
    ]
    if cost.rss_mib is not None:
        figures.append(against_target("main job: peak RSS", cost.rss_mib, "MiB", RSS_TARGET_MIB, n))
    return figures


def simulated_writes(store: ObjectStore, run_id: str) -> int:
    """The virtual API server's last resource version: one for each change that it committed.

    Raises:
        StoreError: the run has no saved state of a virtual cluster.
    """
    results = open_results(store, run_id, "virtual", {}, spool_folder(store, run_id))
    state = results.last_state()
    results.close()
    if state is None:
        raise StoreError(f"run {run_id}: no state of a virtual cluster; it is no run on one")
    return int(unpacked(state)["store"]["resource_version"])


def report_figures(store: Path, run_id: str) -> list[Figure]:
    """Seconds of `virtscale report`: reads the run's Parquet, writes the HTML."""
    command = [sys.executable, "-m", "flows", "report", run_id, "--store", str(store)]
    costs = [cost_of(command) for _ in range(REPORT_ROUNDS)]
    wall_s = statistics.median(each.wall_s for each in costs)
    cpu_s = statistics.median(each.cpu_s for each in costs)
    n = f"n {REPORT_ROUNDS}, median, the whole command; CPU {cpu_s:.2f} s; load average {load()}"
    return [against_target("report from Parquet: wall", wall_s, "s", REPORT_TARGET_S, n)]
