import asyncio
from typing import Any

import pytest

from infra import manifests
from infra.cluster.kinds import DATA_VOLUME, PV, PVC, VM
from infra.cluster.port import Scope
from infra.errors import Expired, Throttled, Unavailable, Unknown
from infra.manifests import Mark
from infra.world import World
from tasks.deploy import deploy_batch
from tests.unit.stages.conftest import OpenWorld, profile_of, rows
from tests.unit.stages.fakes import RefusingCluster

PROFILE = profile_of()
STEPS = ("acknowledged_s", "pvc_bound_s", "datavolume_succeeded_s", "deployed_s")


def test_a_batch_is_deployed_and_gone_again(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        summary = world.run(deploy_batch(world, PROFILE, 3))
        vms, deletes, batches = rows(world, "vm_deploys"), rows(world, "vm_deletes"), rows(world, "batches")
    assert summary["verdict"] == "valid"
    assert [vm["vm"] for vm in vms] == ["t1-d3-0000", "t1-d3-0001", "t1-d3-0002"]
    assert all(vm["state"] == "ok" and vm["attempts"] == 1 for vm in vms)
    assert all(
        vm["requested_s"] <= vm["acknowledged_s"] <= vm["pvc_bound_s"] <= vm["deployed_s"] for vm in vms
    )
    assert all(vm["gone_s"] > 0 and vm["volume_gone_s"] > 0 for vm in deletes)
    assert [row["stage"] for row in batches] == ["deploy", "delete"]
    assert batches[0]["end_to_end_s"] == max(vm["deployed_s"] for vm in vms)
    assert batches[1]["leftovers"] == 0


def test_nothing_of_a_batch_stays_and_every_volume_is_in_the_ledger(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(deploy_batch(world, PROFILE, 2))
        found = {kind: world.run(_names(world, kind, PROFILE.namespace)) for kind in (VM, DATA_VOLUME, PVC)}
        ledger = world.results.ledger()
    assert found == {VM: [], DATA_VOLUME: [], PVC: []}
    volumes = {name: uids for name, uids in ledger.items() if name[0] == PV.kind}
    assert len(volumes) == 2
    assert all(uids != {""} for uids in volumes.values())


async def _names(world: World, kind: Any, where: str) -> list[str]:
    return [obj["metadata"]["name"] for obj in (await world.cluster.list(Scope(kind, where))).items]


def test_a_clone_that_fails_is_a_record_with_nulls(open_virtual: OpenWorld) -> None:
    with open_virtual('[[fault]]\nkind = "clone-fails"\nvms = 1\nstage = "deploy"\n') as world:
        summary = world.run(deploy_batch(world, PROFILE, 3))
        vms, batch = rows(world, "vm_deploys"), rows(world, "batches")[0]
        worst = [row for row in rows(world, "percentiles") if row["step"] == "deployed" and row["q"] == 100.0]
    failed = [vm for vm in vms if vm["state"] == "failed"]
    assert len(vms) == 3
    assert len(failed) == 1
    assert (failed[0]["reason"], failed[0]["detail"]) == ("clone_failed", "DataVolume Failed")
    assert failed[0]["deployed_s"] is None
    assert failed[0]["pvc_bound_s"] is None
    assert summary["verdict"] == "invalid"
    assert batch["end_to_end_s"] is None
    assert any(reason.startswith("clone_failed") for reason in batch["reasons"])
    assert [row["value_s"] for row in worst] == [None, None]
    assert [row["n_censored"] for row in worst if row["stage"] == "deploy"] == [1, 1]


def test_a_resent_create_counts_attempts_and_keeps_its_clock(open_virtual: OpenWorld) -> None:
    answers: list[Exception | None] = [Throttled("slow down", 3.0), Unavailable("webhook away"), None]

    def refuse(_verb: str, name: str) -> Exception | None:
        return answers.pop(0) if name == "t1-d2-0001" and answers else None

    with open_virtual(through=lambda cluster: RefusingCluster(cluster, refuse)) as world:
        world.run(deploy_batch(world, PROFILE, 2))
        first, second = rows(world, "vm_deploys")
    assert (first["attempts"], second["attempts"]) == (1, 3)
    assert second["requested_s"] == first["requested_s"] == 0.0
    assert second["acknowledged_s"] > 3.0


def test_a_create_whose_outcome_is_unknown_is_read_back_and_not_sent_again(open_virtual: OpenWorld) -> None:
    lost = [Unknown("connection reset after sending")]

    def refuse(_verb: str, name: str) -> Exception | None:
        return lost.pop() if name == "t1-d2-0000" and lost else None

    with open_virtual(through=lambda cluster: RefusingCluster(cluster, refuse, after=True)) as world:
        world.run(deploy_batch(world, PROFILE, 2))
        vms = rows(world, "vm_deploys")
    assert [vm["state"] for vm in vms] == ["ok", "ok"]
    assert [vm["attempts"] for vm in vms] == [1, 1]


def test_a_stated_rate_spaces_the_requests_from_the_release(open_virtual: OpenWorld) -> None:
    profile = profile_of(deploy={"batches": [5], "rate_per_s": 2.0})
    with open_virtual() as world:
        world.run(deploy_batch(world, profile, 5))
        vms = rows(world, "vm_deploys")
        batch = rows(world, "batches")[0]
    assert [vm["requested_s"] for vm in vms] == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert batch["achieved_rate_per_s"] == pytest.approx(2.0, rel=1e-3)
    assert batch["verdict"] == "valid"


def test_a_single_vm_misses_no_rate(open_virtual: OpenWorld) -> None:
    profile = profile_of(deploy={"batches": [1], "rate_per_s": 50.0})
    with open_virtual() as world:
        assert world.run(deploy_batch(world, profile, 1))["verdict"] == "valid"
        assert rows(world, "batches")[0]["achieved_rate_per_s"] is None


def test_every_vm_says_which_golden_source_it_clones(open_virtual: OpenWorld) -> None:
    profile = profile_of(deploy={"batches": [5]}, golden_image={"sources": 2})
    with open_virtual() as world:
        world.run(deploy_batch(world, profile, 5))
        found = [vm["source"] for vm in rows(world, "vm_deploys")]
    assert found == ["golden-0", "golden-1", "golden-0", "golden-1", "golden-0"]


def test_deleted_vms_whose_clone_failed_are_no_percentile_beyond_the_limit(open_virtual: OpenWorld) -> None:
    with open_virtual('[[fault]]\nkind = "clone-fails"\nvms = 1\nstage = "deploy"\n') as world:
        world.run(deploy_batch(world, PROFILE, 3))
        gone = [row for row in rows(world, "percentiles") if row["step"] == "volume_gone"]
    assert all((row["n_censored"], row["value_s"] is None) == (0, False) for row in gone)


def test_no_volume_outlives_the_canary_and_the_batch(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(deploy_batch(world, PROFILE, 2))
        claims = [volume["spec"]["claimRef"]["name"] for volume in world.run(_volumes(world))]
    assert claims == ["golden"]


async def _volumes(world: World) -> list[Any]:
    await asyncio.sleep(60)
    return (await world.cluster.list(Scope(PV))).items


def test_what_was_left_before_a_batch_is_not_laid_at_its_door(open_virtual: OpenWorld) -> None:
    profile = profile_of(deploy={"batches": [2, 3]}, quiesce={"limit_s": 60})
    stray = manifests.heartbeat(PVC.kind, "tmp-1", profile.golden_namespace, Mark("other", "other", "run"))
    with open_virtual() as world:
        world.run(deploy_batch(world, profile, 2))
        world.run(world.cluster.create(stray))
        world.run(deploy_batch(world, profile, 3))
        later = next(b for b in rows(world, "batches") if (b["stage"], b["batch"]) == ("delete", 3))
    assert (later["leftovers"], later["verdict"]) == (0, "valid")


def test_a_vm_beyond_the_limit_is_a_timeout_without_latency(open_virtual: OpenWorld) -> None:
    profile = profile_of(deploy={"batches": [3], "limit_s": 0.2})
    with open_virtual() as world:
        world.run(deploy_batch(world, profile, 3))
        vms, batch = rows(world, "vm_deploys"), rows(world, "batches")[0]
    assert [vm["state"] for vm in vms] == ["timeout"] * 3
    assert all(vm["deployed_s"] is None and vm["reason"] for vm in vms)
    assert (batch["n_timeout"], batch["verdict"]) == (3, "invalid")


def test_an_interrupted_batch_is_incomplete_and_leaves_nothing(open_virtual: OpenWorld) -> None:
    async def interrupted(world: World) -> None:
        task = asyncio.ensure_future(deploy_batch(world, PROFILE, 40))
        while len(await _names(world, PVC, PROFILE.namespace)) < 10:
            await world.clock.sleep(0.1)
        task.cancel()
        await task

    with open_virtual() as world:
        with pytest.raises(asyncio.CancelledError):
            world.run(interrupted(world))
        left = world.run(_names(world, VM, PROFILE.namespace))
        commits = world.results.commits()
        states = {row["state"] for row in rows(world, "vm_deploys", "all")}
    assert left == []
    assert [commit.complete for commit in commits] == [False]
    assert "lost" in states
    assert states <= {"ok", "lost"}


def test_the_same_batch_in_a_new_attempt_has_the_same_names(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(deploy_batch(world, PROFILE, 2))
    with open_virtual() as world:
        world.run(deploy_batch(world, PROFILE, 2))
        attempts = [(row["vm"], row["attempt"]) for row in rows(world, "vm_deploys", "all")]
    assert attempts == [("t1-d2-0000", 1), ("t1-d2-0001", 1), ("t1-d2-0000", 2), ("t1-d2-0001", 2)]


def test_requests_wait_for_a_new_token_and_the_batch_says_that_one_ran_out(open_virtual: OpenWorld) -> None:
    expired: dict[str, int] = {}

    def refuse(verb: str, name: str) -> Exception | None:
        if verb != "create" or not name.startswith("t1-d2-"):
            return None
        expired[name] = expired.get(name, 0) + 1
        return Expired("401 Unauthorized") if expired[name] < 3 else None

    with open_virtual(through=lambda cluster: RefusingCluster(cluster, refuse)) as world:
        world.run(deploy_batch(world, profile_of(), 2))
        vms, batch = rows(world, "vm_deploys"), rows(world, "batches")[0]
    assert [(vm["state"], vm["attempts"]) for vm in vms] == [("ok", 3)] * 2
    assert batch["reasons"] == ["auth_expired: 4 requests refused as not allowed (401, 403)"]


def test_a_login_that_never_comes_back_fails_the_vms_with_the_servers_words(open_virtual: OpenWorld) -> None:
    def refuse(verb: str, name: str) -> Exception | None:
        return Expired("401 Unauthorized") if verb == "create" and name.startswith("t1-d2-") else None

    with open_virtual(through=lambda cluster: RefusingCluster(cluster, refuse)) as world:
        world.run(deploy_batch(world, profile_of(), 2))
        vms = rows(world, "vm_deploys")
    assert {(vm["state"], vm["detail"]) for vm in vms} == {("failed", "401 Unauthorized")}
