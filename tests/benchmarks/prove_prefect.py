"""What happens to a run when something it needs is killed: `make prove-prefect` writes docs/operations.md.

Each run measures a served cluster in real time, through a worker, on PostgreSQL, and is disturbed in the
second of its three batches. What was redone is counted in log lines that only an execution writes.
A part that was done with the very same code is not done again.
"""

import os
import signal
import sys
import tempfile
import time
import urllib.error
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from infra import postgres, prefect_server
from infra.background import running
from infra.results.commits import read_commits
from infra.results.open import open_store
from infra.results.read import scan
from tasks.records import TABLES
from tests.benchmarks.browser import program
from tests.benchmarks.kept import Rows, kept_rows
from tests.benchmarks.prove_prefect_cancel import cancelled, said
from tests.benchmarks.prove_prefect_cost import cost
from tests.benchmarks.prove_prefect_lines import lines
from tests.benchmarks.prove_prefect_page import write_page
from tests.benchmarks.prove_prefect_ui import begun, proof
from tests.integration.operating import ENDED, SERVED, Operation, operating, serving, until

ROOT = Path(__file__).parents[2]
DEPLOYMENT = f"deploy/{SERVED}"
BATCHES = (15, 30, 45)
RATE_PER_S = 1.0
PATIENCE_S = 600.0
REPORTED = "Reported flow run"
REPORTED_S = 90.0
"""A worker reports a crash twice; the later report, this log line, ends a run that was retried before it."""


class Told(NamedTuple):
    """One row of the table."""

    killed: str
    ended: str
    redone: str
    records: str
    slot: str


class Case(NamedTuple):
    """What is killed, and how it comes back; returns how long it was away, seconds."""

    killed: str
    disturb: Callable[[Operation, str], float]


def flow_process(operation: Operation, run_id: str) -> float:
    """KILL the process of the run."""
    os.kill(pid_of(run_id), signal.SIGKILL)
    return 0.0


def worker(operation: Operation, run_id: str) -> float:
    """KILL the worker; its run goes on by itself. Then start another."""
    os.kill(worker_pid(operation), signal.SIGKILL)
    return mended(operation, time.monotonic())


def machine(operation: Operation, run_id: str) -> float:
    """KILL the worker and its run, as when their machine dies: nobody is left to say so."""
    os.kill(worker_pid(operation), signal.SIGKILL)
    os.kill(pid_of(run_id), signal.SIGKILL)
    return mended(operation, time.monotonic())


def server_for(away_s: float) -> Callable[[Operation, str], float]:
    """KILL the server, and start it again so much later."""

    def disturb(operation: Operation, run_id: str) -> float:
        began_s = time.monotonic()
        os.kill(in_state(operation, prefect_server.find_server).pid, signal.SIGKILL)
        time.sleep(away_s)
        return mended(operation, began_s)

    return disturb


def database(operation: Operation, run_id: str) -> float:
    """KILL PostgreSQL, and start it again 30 s later."""
    own, began_s = in_state(operation, postgres.find), time.monotonic()
    os.kill(int((own.folder / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    time.sleep(30)
    postgres.up(own)
    until(lambda: answers(operation), bool)
    return time.monotonic() - began_s


CASES = (
    Case("flow process", flow_process),
    Case("worker", worker),
    Case("worker and its run (the machine)", machine),
    Case("server, for 15 s", server_for(15)),
    Case("server, for 100 s", server_for(100)),
    Case("PostgreSQL, for 30 s", database),
)


def main(folder: Path, only: list[str]) -> None:
    """Everything, then the page; only what is named (cost, browser, worker, server...), then no page."""
    assert program() is not None, "no Chromium here (Debian: apt install chromium)"
    pictures = ROOT / ".proof" / "prefect"
    with operating(folder) as operation:
        parts: dict[str, Callable[[], Rows]] = {
            "cost": lambda: cost(operation),
            "lines": lambda: lines(operation, folder),
            "browser": lambda: proof(operation, folder, pictures),
        }
        seen = {name: shown(name, part) for name, part in parts.items() if is_asked(name, only)}
        with serving(operation):
            if is_asked("cancel", only):
                seen["cancel"] = shown("cancel", lambda: cancelled(operation, pid_of))
            asked = [case for case in CASES if is_asked(case.killed, only)]
            seen["kills"] = [row for case in asked for row in killed(operation, case)]
    if not only:
        write_page(ROOT / "docs" / "operations.md", seen)


def is_asked(name: str, only: list[str]) -> bool:
    """Whether it was named on the command line, or nothing was."""
    return not only or any(each in name for each in only)


def shown(name: str, part: Callable[[], Rows]) -> Rows:
    """Take one part, and tell of it."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    rows = kept_rows("prove-prefect", name, part)
    for row in rows:
        print(" | ".join(row), file=sys.stderr, flush=True)
    return rows


def killed(operation: Operation, case: Case) -> Rows:
    """The one row of a case."""
    return shown(case.killed, lambda: [disturbed(operation, case)])


def disturbed(operation: Operation, case: Case) -> Told:
    """Run one case."""
    run_id = operation.start(DEPLOYMENT, batches=list(BATCHES), rate_per_s=RATE_PER_S)
    until(lambda: is_at_second(operation, run_id), bool, PATIENCE_S)
    time.sleep(10)
    began_s = time.monotonic()
    away_s = case.disturb(operation, run_id)
    state = ended(operation, run_id)
    how = f"{state.title()} after {time.monotonic() - began_s:.0f} s"
    free_s = freed(operation, began_s)
    if state != "COMPLETED":
        how += f"; Retry: {retried(operation, run_id).title()}"
    return Told(
        f"{case.killed}{f' (away {away_s:.0f} s)' if away_s else ''}",
        how,
        redone(operation, run_id),
        records(operation, run_id),
        free_s,
    )


def is_at_second(operation: Operation, run_id: str) -> bool:
    """Whether the run is at its second batch."""
    state = operation.run(run_id)["state"]
    assert state["type"] not in ENDED, state["message"]
    return begun(operation, run_id)[f"deploy {BATCHES[1]}"] > 0


def ended(operation: Operation, run_id: str) -> str:
    """The state in which the run ends; nobody answers while the server is away."""
    return str(
        until(
            lambda: calmly(lambda: operation.run(run_id)["state"]["type"]), lambda s: s in ENDED, PATIENCE_S
        )
    )


def retried(operation: Operation, run_id: str) -> str:
    """Press Retry as the UI does, once a worker that saw the crash has done with it."""
    deadline = time.monotonic() + REPORTED_S
    while time.monotonic() < deadline:
        if any(REPORTED in line for line in said(operation, run_id)):
            break
        time.sleep(1)
    retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
    assert operation.ask("POST", f"/flow_runs/{run_id}/set_state", retry)["status"] == "ACCEPT"
    # one that was taken for dead may end by itself
    until(
        lambda: operation.run(run_id),
        lambda run: run["run_count"] > 1 or run["state"]["type"] in ENDED,
        PATIENCE_S,
    )
    return ended(operation, run_id)


def redone(operation: Operation, run_id: str) -> str:
    """What was executed more than once, by attempts in the store and by log lines, of which some are lost."""
    # Log lines reach the server a little later.
    time.sleep(5)
    counted = begun(operation, run_id)
    store = open_store(str(operation.folder / "store"))
    commits = [each for each in read_commits(store, run_id) if each.complete and each.cell.stage == "deploy"]
    attempts = {f"deploy {each.cell.cell}": each.attempt for each in commits}
    assert all(counted[name] <= attempt for name, attempt in attempts.items()), (attempts, counted)
    counted |= Counter(attempts)
    twice = [f"{name} ({n} times)" for name, n in counted.items() if n > 1]
    return ", ".join(twice) or "nothing"


def records(operation: Operation, run_id: str) -> str:
    """Rows of the last complete attempts against what was asked for; each VM once."""
    store = operation.folder / "store"
    commits = [each for each in read_commits(open_store(str(store)), run_id) if each.complete]
    deploys = Counter(each.cell.cell for each in commits if each.cell.stage == "deploy")
    assert deploys == Counter(map(str, BATCHES)), deploys
    table = TABLES["vm_deploys"]
    kept = scan(open_store(str(store)), run_id, "vm_deploys", table, "last_complete")
    assert kept.height == sum(BATCHES), kept.height
    assert kept.select("batch", "vm").is_unique().all()
    return f"{kept.height} of {sum(BATCHES)}, each once"


def freed(operation: Operation, began_s: float) -> str:
    """When the slot of the cluster is free."""
    path = f"/v2/concurrency_limits/virtscale-{SERVED}"
    until(lambda: calmly(lambda: operation.ask("GET", path)["active_slots"]) == 0, bool, PATIENCE_S)
    return f"free after {time.monotonic() - began_s:.0f} s"


def calmly(ask: Callable[[], Any]) -> Any:
    """The answer; None when there is none now."""
    with suppress(OSError, urllib.error.URLError):
        return ask()
    return None


def answers(operation: Operation) -> bool:
    """Whether Prefect answers, its database included."""
    return calmly(lambda: operation.ask("POST", "/flow_runs/count", {})) is not None


def mended(operation: Operation, began_s: float) -> float:
    """`virtscale prefect up` starts what is missing; returns the seconds since `began_s`."""
    environment = {k: v for k, v in operation.environment.items() if k != "PREFECT_API_URL"}
    port = operation.url.removesuffix("/api").rpartition(":")[2]
    up = operation._replace(environment=environment).virtscale(
        "prefect", "up", "--port", port, "--webhook-port", str(operation.hook_port)
    )
    assert up.returncode == 0, up.stderr
    return time.monotonic() - began_s


def in_state(operation: Operation, find: Callable[[], Any]) -> Any:
    """What `find` finds in the operation's state folder."""
    before = os.environ.get("VIRTSCALE_STATE")
    os.environ["VIRTSCALE_STATE"] = operation.environment["VIRTSCALE_STATE"]
    try:
        return find()
    finally:
        if before is None:
            del os.environ["VIRTSCALE_STATE"]
        else:
            os.environ["VIRTSCALE_STATE"] = before


def worker_pid(operation: Operation) -> int:
    """The worker's process id."""
    from flows.stack import worker as program_of_worker

    found = in_state(operation, lambda: running(program_of_worker()))
    assert isinstance(found, int)
    return found


def pid_of(run_id: str) -> int:
    """The process that executes the run: Prefect names the run in its environment."""
    mark = f"PREFECT__FLOW_RUN_ID={run_id}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
    raise AssertionError(f"no process executes {run_id}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="prove-prefect-") as made:
        main(Path(made), sys.argv[1:])
