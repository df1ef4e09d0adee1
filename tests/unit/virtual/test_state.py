"""A saved state: every opening of it goes on in the same way, in every process."""

import asyncio
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from infra import manifests
from infra.cluster.kinds import DATA_VOLUME, POD, PV, PVC, VM, VMI, VOLUME_ATTACHMENT
from infra.cluster.port import Ref, Scope
from infra.cluster.virtual.description import Description, load_description
from infra.cluster.virtual.runtime import VirtualCluster
from infra.cluster.virtual.saved_state import unpacked
from infra.manifests import Disk, Machine, Mark, Source, virtual_machine
from tests.unit.virtual.conftest import OpenCluster

KINDS = (VM, VMI, DATA_VOLUME, PVC, PV, POD, VOLUME_ATTACHMENT)
MARK = Mark("r1", "nonce", "boot", 8, 0)
DISK = Disk(10, "ocs-external-storagecluster-ceph-rbd", "ReadWriteMany", "Block")
VMS = 8


def study(workers: int = 5) -> Description:
    """The study's cluster with fewer workers."""
    found = load_description("study")
    return found.model_copy(update={"nodes": found.nodes.model_copy(update={"workers": workers})})


async def create(cluster: VirtualCluster) -> None:
    """A golden image, and the VMs; the clones are on their way when this returns."""
    api = cluster.client
    for name in ("golden", "ns"):
        await api.create(manifests.namespace(name, MARK))
    await api.create(manifests.golden_data_volume("image", "golden", MARK, "docker://image", DISK))
    await asyncio.sleep(200)
    snapshot_class = cluster.description.snapshot_class
    await api.create(manifests.volume_snapshot("snap", "golden", MARK, snapshot_class, "image"))
    await asyncio.sleep(20)
    await api.create(manifests.data_source("source", "golden", MARK, "snap"))
    await asyncio.sleep(20)
    for number in range(VMS):
        machine, source = Machine(1, 2, DISK), Source("golden", "source")
        await api.create(virtual_machine(f"vm-{number}", "ns", MARK, machine, source))
    await asyncio.sleep(0.5)


async def later(cluster: VirtualCluster) -> list[str]:
    """Every event from here on: the clones end, the VMs start and stop."""
    api, seen = cluster.client, list[str]()

    async def watch(kind: object) -> None:
        version = (await api.list(Scope(kind))).resource_version  # type: ignore[arg-type]
        async for batch in api.watch(Scope(kind), version):  # type: ignore[arg-type]
            seen.extend(f"{batch.received_ns} {what} {json.dumps(obj)}" for what, obj in batch.events)

    watching = [asyncio.ensure_future(watch(kind)) for kind in KINDS]
    for verb in ("", "start", "stop"):
        for number in range(VMS if verb else 0):
            await api.subresource(Ref(VM, "ns", f"vm-{number}"), verb)
        await asyncio.sleep(120)
    for task in watching:
        task.cancel()
    return seen


def saved(open_cluster: OpenCluster, seed: int = 1) -> bytes:
    cluster = open_cluster(study(), seed=seed)
    cluster.run(create(cluster))
    return cluster.state()


def test_two_openings_of_a_state_have_the_same_future(open_cluster: OpenCluster) -> None:
    state = saved(open_cluster)
    futures = []
    for _ in range(2):
        cluster = open_cluster(study(), state=state)
        futures.append((cluster.run(later(cluster)), cluster.state()))
    assert futures[0] == futures[1]
    assert len(futures[0][0]) >= 25 * VMS


def test_a_state_in_the_middle_of_clones_is_brought_to_its_end(open_cluster: OpenCluster) -> None:
    state = saved(open_cluster)
    phases = {
        obj["status"].get("phase")
        for obj in unpacked(state)["store"]["objects"]
        if obj["kind"] == "DataVolume" and obj["metadata"]["namespace"] == "ns"
    }
    assert phases - {"Succeeded"}, "nothing would be left to do"
    cluster = open_cluster(study(), state=state)
    cluster.run(later(cluster))
    objects = unpacked(cluster.state())["store"]["objects"]
    assert {o["status"]["phase"] for o in objects if o["kind"] == "DataVolume"} == {"Succeeded"}
    assert {o["status"]["printableStatus"] for o in objects if o["kind"] == "VirtualMachine"} == {"Stopped"}
    assert not [o for o in objects if o["kind"] in ("Pod", "VirtualMachineInstance", "VolumeAttachment")]
    assert not [o for o in objects if o["metadata"]["name"].startswith("tmp-pvc-")]


def test_opening_and_saving_alone_changes_no_object(open_cluster: OpenCluster) -> None:
    cluster = open_cluster(study())
    cluster.run(create(cluster))
    cluster.run(later(cluster))
    state = cluster.state()
    again = open_cluster(study(), state=state).state()
    before, after = unpacked(state), unpacked(again)
    settled_s = (after.pop("now_ns") - before.pop("now_ns")) / 1e9
    assert settled_s == pytest.approx(60, abs=1)
    assert after == before


def test_a_first_boot_is_a_reboot_after_a_new_opening(open_cluster: OpenCluster) -> None:
    cluster = open_cluster(study())
    cluster.run(create(cluster))
    cluster.run(later(cluster))
    assert set(unpacked(cluster.state())["disks"].values()) == {1}
    again = open_cluster(study(), state=cluster.state())
    again.run(later(again))
    assert set(unpacked(again.state())["disks"].values()) == {2}


def test_another_seed_has_another_future(open_cluster: OpenCluster) -> None:
    one, two = saved(open_cluster, seed=1), saved(open_cluster, seed=2)
    assert one != two
    assert one == saved(open_cluster, seed=1)


def run(store: Path, hash_seed: str, seed: str = "7") -> dict[str, str]:
    """Digest of each Parquet part of a smoke run from the command line."""
    command = [sys.executable, "-m", "flows", "run", "--no-prefect", "--profile", "smoke", "--run-id", "same"]
    stages = "preflight,golden-image,deploy,boot"
    subprocess.run(
        [*command, "--stages", stages, "--seed", seed, "--store", str(store)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    parts = sorted(store.rglob("*.parquet"))
    return {str(part.relative_to(store)): sha256(part.read_bytes()).hexdigest() for part in parts}


@pytest.mark.slow
def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    first = run(tmp_path / "1", "1")
    assert first
    assert run(tmp_path / "2", "random") == first
    other = run(tmp_path / "3", "1", seed="8")
    assert other.keys() == first.keys()
    assert other != first
