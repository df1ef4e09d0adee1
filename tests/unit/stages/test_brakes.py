"""No more of a batch is issued when it does harm to others; what was begun goes on."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.kinds import NODE, VM, VMI
from infra.cluster.port import Cluster, Object, ObjectList, Ref, Scope
from infra.errors import ClusterError, Expired, StageError
from infra.world import World
from tasks.boot_storm import boot_batch
from tasks.brakes import Brake, Braked
from tasks.braking import _is_failing, braking
from tasks.deploy import deploy_batch
from tasks.profile import Profile
from tasks.thresholds import Brakes
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

NS = 10**9


def judged(answers_s: list[float], kept_s: float = 0.0, limit_s: float = 1.0) -> str:
    """Why a brake is pulled, of so many requests sent at 0 and answered after so long; one is kept."""

    async def judge() -> str:
        brake, now_ns = Brake(Brakes(api_p99_s=limit_s)), round(kept_s * NS)
        for i, took_s in enumerate(answers_s):
            brake.left(i, now_ns - round(took_s * NS))
            brake.came_back(i, now_ns)
        if kept_s:
            brake.left(10**6, 0)
        brake.look(now_ns)
        return brake.why

    return asyncio.run(judge())


def test_slow_answers_pull_the_brake_and_so_does_one_that_is_kept() -> None:
    assert judged([0.5] * 50) == ""
    assert judged([0.5] * 40 + [3.0] * 10) == "the API's p99 is 3.0 s (limit 1 s)"
    assert judged([0.5] * 50, kept_s=9.0) == "the API's p99 is 9.0 s (limit 1 s)"
    assert judged([3.0] * 3) == "", "a percentile of three answers says nothing"


def test_one_slow_answer_in_two_hundred_is_within_the_percentile() -> None:
    assert judged([0.5] * 199 + [30.0]) == ""


def test_nothing_leaves_once_it_is_pulled() -> None:
    async def pull() -> None:
        brake = Brake(Brakes())
        brake.node("n1", is_ready=False)
        assert not brake.why, "it was not Ready before"
        brake.node("n1", is_ready=True)
        brake.node("n1", is_ready=False)
        with pytest.raises(Braked, match="node n1"):
            brake.left(0, 0)

    asyncio.run(pull())


def test_they_are_on_wherever_somebody_else_may_be() -> None:
    assert [Brakes().are_on(world) for world in ("virtual", "served", "testbed", "kubernetes")] == [
        False, True, True, True,
    ]  # fmt: skip
    assert Brakes(active=True).are_on("virtual")


class Unseen:
    """A cluster that does not tell of its nodes."""

    def __init__(self, cluster: Cluster, error: ClusterError) -> None:
        self._cluster, self._error = cluster, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def list(self, scope: Scope, **page: Any) -> ObjectList:
        if scope.kind is NODE:
            raise self._error
        return await self._cluster.list(scope, **page)


@pytest.mark.parametrize(
    ("error", "why"),
    [(Expired("Unauthorized"), "no list of Node within 30 s"), (ClusterError("nonsense"), "nonsense")],
)
def test_a_brake_that_cannot_see_is_pulled(open_virtual: OpenWorld, error: ClusterError, why: str) -> None:
    async def pulled(world: World) -> str:
        async with braking(world, Brakes(active=True)) as brake:
            return brake.why

    with open_virtual() as world:
        assert world.run(pulled(world)) == ""
        blind = replace(world, cluster=Unseen(world.cluster, error))
        assert world.run(pulled(blind)) == f"harm to others could not be seen: {why}"


PACED = {"batches": [20], "rate_per_s": 2.0}


def braked(world: World, profile: Profile, harm: Any) -> str:
    """What is said when a stranger is harmed four seconds after the first VM of ours is there."""

    async def run() -> str:
        batch = deploy_batch if harm.stage == "deploy" else boot_batch
        work = asyncio.ensure_future(batch(world, profile, 20))
        scope = Scope(VM if harm.stage == "deploy" else VMI, profile.namespace, "virtscale.io/batch=20")
        while not (await world.cluster.list(scope)).items:
            await world.clock.sleep(0.2)
        await harm.before(world)
        await world.clock.sleep(4)
        await harm(world)
        with pytest.raises(StageError) as stopped:
            await work
        return str(stopped.value)

    return world.run(run())


class NodeLost:
    stage = "deploy"

    async def before(self, world: World) -> None:
        """All nodes are Ready."""

    async def __call__(self, world: World) -> None:
        name = (await world.cluster.list(Scope(NODE))).items[-1]["metadata"]["name"]
        condition = {"type": "Ready", "status": "Unknown"}
        await world.cluster.patch(
            Ref(NODE, "", name), {"status": {"conditions": [condition]}}, subresource="status"
        )


class StrangerFails:
    stage = "boot"

    def instance(self, name: str, phase: str) -> Object:
        meta = {"name": name, "namespace": "default"}
        return {
            "apiVersion": VMI.api_version,
            "kind": VMI.kind,
            "metadata": meta,
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": phase},
        }

    async def before(self, world: World) -> None:
        await world.cluster.create(self.instance("well", "Running"))

    async def __call__(self, world: World) -> None:
        await world.cluster.patch(Ref(VMI, "default", "well"), {"status": {"phase": "Failed"}})


HARMS = {
    "a node": (NodeLost(), "vm_deploys", "not Ready any more: node "),
    "a stranger's VM": (StrangerFails(), "vm_boots", "VMs of others began to fail: default/well is one of 1"),
}


@pytest.mark.parametrize(("harm", "table", "why"), HARMS.values(), ids=HARMS)
def test_a_braked_batch_keeps_what_was_begun_says_why_and_no_larger_one_follows(
    open_virtual: OpenWorld, harm: Any, table: str, why: str
) -> None:
    profile = profile_of(deploy=PACED, boot=PACED, brakes={"active": True})
    with open_virtual() as world:
        said = braked(world, profile, harm)
        vms, batches = rows(world, table), rows(world, "batches")
        commits = world.results.commits()
    assert said.startswith(f"the brake was pulled: {why}")
    begun, held = [vm for vm in vms if vm["state"] == "ok"], [vm for vm in vms if vm["state"] == "failed"]
    assert len(begun) + len(held) == 20
    assert begun
    assert held
    assert {(vm["requested_s"], vm["attempts"] <= 1) for vm in held} == {(None, True)}
    assert all(vm["detail"].startswith(f"not sent: {why}") for vm in held)
    assert max(vm["requested_s"] for vm in begun) < 4 + 5 + 1
    (reason,) = [text for text in batches[0]["reasons"] if text.startswith("brake: ")]
    assert reason.startswith(f"brake: {len(held)} of 20 requests held back: {why}")
    assert batches[0]["verdict"] == "invalid"
    assert (batches[1]["n"], batches[1]["n_ok"]) == (len(begun), len(begun)), "what was begun is drained"
    assert [commit.complete for commit in commits] == [True]


def test_a_stranger_that_is_stopped_may_end_as_failed() -> None:
    stopped = StrangerFails().instance("ill", "Failed")
    assert _is_failing(stopped)
    stopped["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not _is_failing(stopped)


def test_strangers_that_failed_before_are_not_our_doing(open_virtual: OpenWorld, tmp_path: Path) -> None:
    profile = profile_of(brakes={"active": True})
    with open_virtual() as world:
        world.run(world.cluster.create(StrangerFails().instance("ill", "Failed")))
        assert world.run(deploy_batch(world, profile, 2))["verdict"] == "valid"
