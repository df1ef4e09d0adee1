"""Batches in four shards on virtual time: the records are those of one process."""

import asyncio
from itertools import count

import pytest

from infra.cluster.kinds import POD, PVC, VM, VMI, Kind
from infra.cluster.port import Object, Scope
from infra.errors import StageError
from infra.world import World
from tasks.boot_storm import boot_batch
from tasks.deploy import deploy_batch
from tasks.records import STEPS, VM_TABLES
from tasks.shards.share import Share
from tests.unit.stages.conftest import OpenWorld, profile_of, rows
from tests.unit.stages.shard_fakes import KILLED, sharded, unguested

N = 20
PROFILE = profile_of(deploy={"batches": [N]}, boot={"batches": [N]})


async def measure(world: World) -> None:
    await deploy_batch(world, PROFILE, N)
    await boot_batch(world, PROFILE, N)


def test_four_shards_give_the_records_of_one_process(open_virtual: OpenWorld) -> None:
    found = {}
    for name in ("one", "four"):
        with open_virtual() as world:
            world.run(measure(unguested(world) if name == "one" else sharded(world, PROFILE)))
            found[name] = {table: rows(world, table) for table in (*VM_TABLES.values(), "batches", "shards")}
    assert found["one"]["shards"] == []
    assert [row["vms"] for row in found["four"]["shards"]] == [5] * 16
    for stage, table in VM_TABLES.items():
        one, four = found["one"][table], found["four"][table]
        assert [vm["vm"] for vm in four] == [vm["vm"] for vm in one]
        assert [(vm["state"], vm["attempts"]) for vm in four] == [("ok", 1)] * N
        assert [list(vm) for vm in four] == [list(vm) for vm in one]
        for step in STEPS[stage]:
            # which VM a worker of the model takes first is not the same
            known = [[vm[f"{step}_s"] for vm in vms if vm[f"{step}_s"] is not None] for vms in (one, four)]
            assert len(known[0]) == len(known[1])
            if known[0]:
                assert max(known[0]) == pytest.approx(max(known[1]), rel=0.5)
    verdicts = [(row["stage"], row["n_ok"], row["verdict"]) for row in found["four"]["batches"]]
    assert verdicts == [(stage, N, "valid") for stage in ("deploy", "delete", "boot", "stop")]


def test_shards_keep_the_rate_of_the_whole(open_virtual: OpenWorld) -> None:
    paced = profile_of(deploy={"batches": [N], "rate_per_s": 2.0})
    with open_virtual() as world:
        world.run(deploy_batch(sharded(world, paced), paced, N))
        requested = [vm["requested_s"] for vm in rows(world, "vm_deploys")]
    assert requested == pytest.approx([i / 2 for i in range(N)], abs=0.05)


def test_a_shard_that_dies_leaves_records_with_a_reason_and_nothing_on_the_cluster(
    open_virtual: OpenWorld,
) -> None:
    asked = count()

    def dies(share: Share, _: World) -> bool:
        """Shard 2 of the deploy, some seconds after the release."""
        return share.stage == "deploy" and next(asked) > 100 and share.number == 2

    with open_virtual() as world:
        world.run(deploy_batch(sharded(world, PROFILE, dies), PROFILE, N))
        vms, batch, shards = rows(world, "vm_deploys"), rows(world, "batches")[0], rows(world, "shards")
        left = [world.run(_count(world, kind)) for kind in (VM, VMI, POD, PVC)]
        deleted = rows(world, "vm_deletes")
    lost = [vm for vm in vms if vm["state"] == "lost"]
    assert len(vms) == N
    assert [(vm["reason"], vm["detail"]) for vm in lost] == [("shard_lost", f"shard 2: {KILLED}")] * 5
    assert all(vm["deployed_s"] is None and vm["requested_s"] is None for vm in lost)
    assert sum(vm["state"] == "ok" for vm in vms) == N - 5
    assert "shard_lost: 1 of 4 processes died: shard 2" in batch["reasons"]
    assert [row["state"] for row in shards if row["stage"] == "deploy"] == ["ok", "ok", "lost", "ok"]
    assert len(deleted) >= N - 5
    assert left == [0, 0, 0, 0]


async def _count(world: World, kind: Kind) -> int:
    return len((await world.cluster.list(Scope(kind, PROFILE.namespace))).items)


def test_a_shard_that_dies_before_the_release_ends_the_batch(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        with pytest.raises(StageError, match="shard 1 is gone before the release"):
            world.run(deploy_batch(sharded(world, PROFILE, lambda share, _: share.number == 1), PROFILE, N))
        assert rows(world, "vm_deploys", "all") == []
        assert world.run(_count(world, VM)) == 0


def test_an_interrupted_batch_keeps_what_its_shards_knew(open_virtual: OpenWorld) -> None:
    async def interrupted(world: World) -> None:
        measuring = asyncio.create_task(deploy_batch(world, PROFILE, N))
        while not any(vm["metadata"].get("labels") for vm in await _vms(world)):
            await world.clock.sleep(0.05)
        await world.clock.sleep(0.5)
        measuring.cancel()
        await measuring

    with open_virtual() as world:
        with pytest.raises(asyncio.CancelledError):
            world.run(interrupted(sharded(world, PROFILE)))
        vms = rows(world, "vm_deploys", "all")
        left = world.run(_count(world, VM))
    assert len(vms) == N
    assert {(vm["state"], vm["detail"]) for vm in vms} <= {("ok", None), ("lost", "interrupted")}
    assert all(vm["acknowledged_s"] is not None for vm in vms)
    assert left == 0


async def _vms(world: World) -> list[Object]:
    """VMs of the batch, without the heartbeats."""
    found = await world.cluster.list(Scope(VM, PROFILE.namespace))
    return [vm for vm in found.items if "heartbeat" not in vm["metadata"]["name"]]
