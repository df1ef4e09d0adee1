"""Cancel in the UI while something cannot go: Prefect kills the process after 30 s, the cleaning goes on.

A finalizer of somebody else is put on the DataSource of the run's golden image, as a stuck controller would
leave it, and taken off only long after the kill.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from infra.cluster.kinds import DATA_SOURCE, VM, Kind
from infra.cluster.port import Cluster, Object, Scope, list_all, ref_of
from infra.cluster.real import connect
from infra.manifests import RUN_LABEL
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from tests.integration.operating import ENDED, SERVED, Operation, until

BATCH = 40
HOLD_S = 80.0
MOST_ISSUED_S, MOST_WAIT_S = 5.0, 30.0
LIMIT_S = 300.0
SAID_BY_HOOK = "cancelled: the run's objects are gone"
HOLDER = "example.com/holds-it"
T = TypeVar("T")


def cancelled(operation: Operation, pid_of: Callable[[str], int]) -> list[tuple[str, str]]:
    """What happened, line by line."""
    run_id = operation.start(f"deploy/{SERVED}", batches=[BATCH], rate_per_s=1)
    until(lambda: len(objects_of(operation, run_id, VM)), lambda n: n >= 10)
    process = pid_of(run_id)
    hold(operation, objects_of(operation, run_id, DATA_SOURCE)[0], [HOLDER])
    second = operation.start(f"deploy/{SERVED}", batches=[1])
    began_s = time.monotonic()
    operation.ask("POST", f"/flow_runs/{run_id}/set_state", {"state": {"type": "CANCELLING"}})
    issued, issued_s = until_none_is_left(operation, run_id)
    vms_s = time.monotonic() - began_s
    assert issued < BATCH
    until(lambda: Path(f"/proc/{process}/stat").exists(), lambda lives: not lives)
    killed_s = time.monotonic() - began_s
    assert killed_s < HOLD_S
    # the hook is a process of its own; it begins some seconds later
    time.sleep(max(0.0, HOLD_S - killed_s))
    assert operation.run(run_id)["state"]["type"] == "CANCELLING"
    (held,) = objects_of(operation, run_id, DATA_SOURCE)
    assert "deletionTimestamp" in held["metadata"]
    hold(operation, held, [])
    freed_s = time.monotonic() - began_s
    assert operation.ended(run_id) == "CANCELLED"
    ended_s = time.monotonic() - began_s
    slot = f"/v2/concurrency_limits/virtscale-{SERVED}"
    # the next run may have it at once
    until(lambda: slot_of(operation.ask("GET", slot), operation.run(second)), bool, 60)
    slot_s = time.monotonic() - began_s
    until(lambda: operation.run(second)["state"]["type"], lambda state: state in {"RUNNING", *ENDED})
    second_s = time.monotonic() - began_s - ended_s
    assert objects_of(operation, run_id, VM) == objects_of(operation, run_id, DATA_SOURCE) == []
    manifest = read_manifest(open_store(str(operation.folder / "store")), run_id)
    assert manifest is not None
    assert manifest["objects_left"] is False
    until(lambda: SAID_BY_HOOK in said(operation, run_id), bool)
    assert operation.ended(second) == "COMPLETED"
    return [
        (
            f"the last VM is created, the {issued}th of {BATCH}",
            f"after {issued_s:.1f} s{at_most(issued_s, MOST_ISSUED_S)}",
        ),
        ("all VMs are gone", f"after {vms_s:.0f} s"),
        ("Prefect kills the process of the run", f"after {killed_s:.0f} s"),
        ("the run is Cancelling still; what is held is let go", f"after {freed_s:.0f} s"),
        ("a hook, another process, has gone on cleaning; the run is Cancelled", f"after {ended_s:.0f} s"),
        ("the slot is free; the run's manifest says that nothing is left", f"after {slot_s:.0f} s"),
        (
            "a second run, which waited for the slot, runs",
            f"{second_s:.0f} s after the first has ended{at_most(second_s, MOST_WAIT_S)}",
        ),
    ]


def at_most(took_s: float, limit_s: float) -> str:
    """Whether it was soon enough, for the table; on a busy machine it may not be."""
    return f", at most {limit_s:g} s: {'yes' if took_s <= limit_s else 'NO'}"


def until_none_is_left(operation: Operation, run_id: str) -> tuple[int, float]:
    """Wait for that; how many VMs there were at most, and seconds until there were so many."""
    most, began_s, rose_s = 0, time.monotonic(), 0.0
    while count := len(objects_of(operation, run_id, VM)):
        if count > most:
            most, rose_s = count, time.monotonic() - began_s
        assert time.monotonic() < began_s + LIMIT_S, count
        time.sleep(0.3)
    return most, rose_s


def said(operation: Operation, run_id: str) -> list[str]:
    """The run's log lines, which reach the server a little later."""
    asked = {"logs": {"flow_run_id": {"any_": [run_id]}}, "sort": "TIMESTAMP_DESC", "limit": 50}
    return [line["message"] for line in operation.ask("POST", "/logs/filter", asked)]


def slot_of(limit: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether the first run's slot is free, or the second's by now."""
    return limit["active_slots"] == 0 or second["state"]["type"] in {"PENDING", "RUNNING", *ENDED}


def objects_of(operation: Operation, run_id: str, kind: Kind) -> list[Object]:
    """The run's objects of a kind."""
    scope = Scope(kind, labels=f"{RUN_LABEL}={run_id}")

    async def listed(cluster: Cluster) -> list[Object]:
        return (await list_all(cluster, scope)).items

    return _asked(operation, listed)


def hold(operation: Operation, held: Object, finalizers: list[str]) -> None:
    """Give the object those finalizers beside its own, or take ours off again."""
    kept = [each for each in held["metadata"].get("finalizers", []) if each != HOLDER]
    _asked(
        operation,
        lambda cluster: cluster.patch(ref_of(held), {"metadata": {"finalizers": kept + finalizers}}),
    )


def _asked(operation: Operation, ask: Callable[[Cluster], Awaitable[T]]) -> T:
    async def asked() -> T:
        cluster = await connect(SERVED, operation.environment["KUBECONFIG"])
        try:
            return await ask(cluster)
        finally:
            with suppress(OSError):
                await cluster.close()

    return asyncio.run(asked())
