"""Cancel in the UI while something holds a VM: Prefect kills the process after 30 s, the cleaning goes on.

A finalizer of somebody else is put on one of the run's VMs, as a stuck driver would leave it, and taken off
only long after the kill.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from infra.cluster.kinds import VM
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
HOLDER = "example.com/holds-it"
T = TypeVar("T")


def cancelled(operation: Operation, pid_of: Callable[[str], int]) -> list[tuple[str, str]]:
    """What happened, line by line."""
    run_id = operation.start(f"deploy/{SERVED}", batches=[BATCH], rate_per_s=1)
    until(lambda: len(vms_of(operation, run_id)), lambda n: n >= 10)
    process = pid_of(run_id)
    hold(operation, vms_of(operation, run_id)[0], [HOLDER])
    second = operation.start(f"deploy/{SERVED}", batches=[1])
    began_s = time.monotonic()
    operation.ask("POST", f"/flow_runs/{run_id}/set_state", {"state": {"type": "CANCELLING"}})
    issued, issued_s = until_one_is_left(operation, run_id)
    others_s = time.monotonic() - began_s
    assert issued < BATCH
    assert issued_s < MOST_ISSUED_S
    until(lambda: Path(f"/proc/{process}/stat").exists(), lambda lives: not lives)
    killed_s = time.monotonic() - began_s
    # the hook is a process of its own; it begins some seconds later
    time.sleep(max(0.0, HOLD_S - killed_s))
    assert operation.run(run_id)["state"]["type"] == "CANCELLING"
    (held,) = vms_of(operation, run_id)
    assert "deletionTimestamp" in held["metadata"]
    cleaner = pid_of(run_id)
    assert cleaner != process
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
    assert second_s < MOST_WAIT_S
    assert vms_of(operation, run_id) == []
    manifest = read_manifest(open_store(str(operation.folder / "store")), run_id)
    assert manifest is not None
    assert manifest["objects_left"] is False
    assert operation.ended(second) == "COMPLETED"
    return [
        (f"the last VM is created, the {issued}th of {BATCH}", f"after {issued_s:.1f} s"),
        ("all VMs but the one that is held are gone", f"after {others_s:.0f} s"),
        ("Prefect kills the process of the run", f"after {killed_s:.0f} s"),
        (
            "the hook, another process, is still waiting for the held VM; the run is Cancelling",
            f"after {freed_s:.0f} s",
        ),
        ("the VM is let go; it is gone, the run is Cancelled", f"after {ended_s:.0f} s"),
        ("the slot is free; the run's manifest says that nothing is left", f"after {slot_s:.0f} s"),
        ("a second run, which waited for the slot, runs", f"{second_s:.0f} s after the first has ended"),
    ]


def until_one_is_left(operation: Operation, run_id: str) -> tuple[int, float]:
    """Wait for that; how many VMs there were at most, and seconds until there were so many."""
    most, began_s, rose_s = 0, time.monotonic(), 0.0
    while (count := len(vms_of(operation, run_id))) != 1:
        if count > most:
            most, rose_s = count, time.monotonic() - began_s
        assert time.monotonic() < began_s + LIMIT_S, count
        time.sleep(0.3)
    return most, rose_s


def slot_of(limit: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether the first run's slot is free, or the second's by now."""
    return limit["active_slots"] == 0 or second["state"]["type"] in {"PENDING", "RUNNING", *ENDED}


def vms_of(operation: Operation, run_id: str) -> list[Object]:
    """The run's VirtualMachines."""
    scope = Scope(VM, labels=f"{RUN_LABEL}={run_id}")

    async def listed(cluster: Cluster) -> list[Object]:
        return (await list_all(cluster, scope)).items

    return _asked(operation, listed)


def hold(operation: Operation, vm: Object, finalizers: list[str]) -> None:
    """Give the VM those finalizers beside its own, or take ours off again."""
    kept = [each for each in vm["metadata"].get("finalizers", []) if each != HOLDER]
    _asked(
        operation, lambda cluster: cluster.patch(ref_of(vm), {"metadata": {"finalizers": kept + finalizers}})
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
