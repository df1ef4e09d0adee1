"""`virtscale cluster control`: the virtual controllers, and a whole run, on a real kube-apiserver."""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pytest

from infra.cluster.kinds import DATA_VOLUME, NAMESPACE, PVC, SNAPSHOT, VM, VMI, Kind
from infra.cluster.port import Cluster, Object, Scope
from infra.cluster.real import connect
from infra.testbed.state import CONTEXT, State
from tests.real.controlling import unhurried, virtscale
from tests.real.manifests import virtual_machine

# The first test pays for the start of the servers and of the controllers.
pytestmark = [pytest.mark.api, pytest.mark.timeout(600)]

T = TypeVar("T")
GUEST_STEPS = ("tcp_open_s", "ssh_banner_s", "ssh_ready_s")
ONE_STORM = ("--stages", "preflight,golden-image,boot", "--set", "boot.batches=4")
DEPLOYS = "preflight,golden-image,deploy,clean"
WITHOUT_GUESTS = "preflight,golden-image,tuning,deploy,boot,report,clean"
KILLED_AFTER_ITS_FIRST_VM = """
import os, signal, sys
from flows.__main__ import exit_code_of
from infra.cluster.real.adapter import KubernetesCluster

create = KubernetesCluster.create

async def create_and_die(self, obj, *, dry_run=False):
    made = await create(self, obj, dry_run=dry_run)
    if obj["kind"] == "VirtualMachine" and not dry_run:
        os.kill(os.getpid(), signal.SIGKILL)
    return made

KubernetesCluster.create = create_and_die
sys.exit(exit_code_of(sys.argv[1:]))
"""


def smoke(store: Path, run_id: str, *options: str) -> tuple[str, ...]:
    where = ("--cluster", CONTEXT, "--store", str(store), "--run-id", run_id)
    places = ("--set", f"namespace={run_id}-vms", "--set", f"golden_namespace={run_id}-golden")
    return ("run", "--no-prefect", "--profile", "smoke", *where, *places, *unhurried(), *options)


def asked(testbed: State, use: Callable[[Cluster], Awaitable[T]]) -> T:
    async def connected() -> T:
        cluster = await connect(CONTEXT, str(testbed.kubeconfig))
        try:
            return await use(cluster)
        finally:
            await cluster.close()

    return asyncio.run(connected())


def names(testbed: State, kind: Kind, namespace: str = "", labels: str = "") -> set[str]:
    async def listed(cluster: Cluster) -> set[str]:
        found = await cluster.list(Scope(kind, namespace, labels))
        return {obj["metadata"]["name"] for obj in found.items}

    return asked(testbed, listed)


def create(testbed: State, *objects: Object) -> None:
    async def created(cluster: Cluster) -> None:
        for obj in objects:
            await cluster.create(obj)

    asked(testbed, created)


def table(store: Path, name: str, run_id: str) -> pl.DataFrame:
    return pl.concat(
        [pl.read_parquet(part) for part in sorted((store / name / f"run_id={run_id}").glob("*.parquet"))]
    )


def left_of(testbed: State, run_id: str) -> dict[str, set[str]]:
    kinds = (VM, VMI, DATA_VOLUME, PVC, SNAPSHOT, NAMESPACE)
    found = {str(kind): names(testbed, kind, labels=f"virtscale.io/run={run_id}") for kind in kinds}
    return {kind: left for kind, left in found.items() if left}


def test_a_smoke_run_is_valid_and_says_testbed_everywhere(controlled: State, tmp_path: Path) -> None:
    answer = virtscale(controlled, *smoke(tmp_path, "real", "--stages", WITHOUT_GUESTS))
    assert answer.returncode == 0, answer.stderr
    assert "verdict valid" in answer.stdout
    assert "Traceback" not in answer.stderr
    boots = table(tmp_path, "vm_boots", "real")
    assert boots.height == 1 + 2 + 4
    assert boots["state"].unique().to_list() == ["ok"]
    assert boots["running_s"].null_count() == 0
    assert all(boots[step].null_count() == boots.height for step in GUEST_STEPS), "there are no guests"
    batches = table(tmp_path, "batches", "real")
    assert batches["verdict"].unique().to_list() == ["valid"]
    assert batches["world"].unique().to_list() == ["testbed"]
    page = (tmp_path / "reports" / "real" / "report.html").read_text(encoding="utf-8")
    assert re.search(r"testbed", page, re.IGNORECASE)
    assert "VIRTUAL" not in page
    assert left_of(controlled, "real") == {}


def test_clean_deletes_nothing_foreign(controlled: State, tmp_path: Path) -> None:
    place = "kept-vms"
    kept = virtscale(controlled, *smoke(tmp_path, "kept", *ONE_STORM, "--keep"))
    assert kept.returncode == 0, kept.stderr
    ours = names(controlled, VM, place)
    assert len(ours) == 4
    mine: dict[str, Any] = {"virtscale.io/run": "kept", "virtscale.io/stage": "boot"}
    labelled, copied, named, other = (
        virtual_machine(name, place) for name in ("labelled", "copied", "kept-b-9999", "somebody-elses")
    )
    labelled["metadata"]["labels"] = mine
    copied["metadata"] |= {"labels": mine, "annotations": {"virtscale.io/nonce": "guessed"}}
    create(controlled, labelled, copied, named, other)
    cleaned = virtscale(controlled, "clean", "kept", "--yes", "--store", str(tmp_path))
    assert cleaned.returncode == 0, cleaned.stderr
    assert names(controlled, VM, place) == {"labelled", "copied", "kept-b-9999", "somebody-elses"}
    assert left_of(controlled, "kept") == {"VirtualMachine": {"labelled", "copied"}, "Namespace": {place}}


def test_clean_finds_what_a_kill_between_create_and_spool_left(controlled: State, tmp_path: Path) -> None:
    command = smoke(tmp_path, "killed", "--stages", DEPLOYS)
    killed = virtscale(controlled, *command, script=KILLED_AFTER_ITS_FIRST_VM)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert names(controlled, VM, "killed-vms")
    cleaned = virtscale(controlled, "clean", "killed", "--yes", "--store", str(tmp_path))
    assert cleaned.returncode == 0, cleaned.stderr
    assert left_of(controlled, "killed") == {}


def test_a_killed_run_goes_on_with_the_same_id(controlled: State, tmp_path: Path) -> None:
    command = smoke(tmp_path, "resumed", "--stages", DEPLOYS)
    assert virtscale(controlled, *command, script=KILLED_AFTER_ITS_FIRST_VM).returncode == -signal.SIGKILL
    answer = virtscale(controlled, *command)
    assert answer.returncode == 0, answer.stderr
    assert left_of(controlled, "resumed") == {}
    deploys = table(tmp_path, "vm_deploys", "resumed").filter(pl.col("state") == "ok")
    assert deploys.group_by("batch").len().sort("batch").rows() == [(1, 1), (2, 2), (4, 4)]
