from typing import Any, cast

import pytest

from infra import manifests
from infra.cluster.kinds import NAMESPACE, VM
from infra.cluster.port import Object, Ref, Scope
from infra.cluster.virtual.runtime import VirtualCluster
from infra.errors import NotFound, StoreError
from infra.manifests import NONCE, RUN_LABEL, Mark
from infra.results.port import Cell
from infra.world import World
from tasks.batch import NS
from tasks.boot_storm import boot_batch
from tasks.clean import EMPTY_LIMIT_S, clean
from tasks.golden_image import ensure_golden_image, sources_of
from tasks.ownership import intend, is_ours, mark_of
from tasks.provisioning import machine_of
from tests.unit.stages.conftest import RUN, OpenWorld, profile_of

PROFILE = profile_of(boot={"batches": [2]})


def vm(name: str, mark: Mark, **metadata: Any) -> Object:
    made = manifests.virtual_machine(
        name, PROFILE.namespace, mark, machine_of(PROFILE), sources_of(PROFILE)[0]
    )
    return {**made, "metadata": {**made["metadata"], **metadata}}


async def names(world: World, where: str = PROFILE.namespace) -> set[str]:
    return {obj["metadata"]["name"] for obj in (await world.cluster.list(Scope(VM, where))).items}


def test_foreign_vms_in_our_namespace_survive(open_virtual: OpenWorld) -> None:
    cleaned_s: list[float] = []

    async def run(world: World) -> set[str]:
        await boot_batch(world, PROFILE, 2)
        mark = mark_of(world, "boot")
        await world.cluster.create(vm("labelled", mark, annotations={}))
        await world.cluster.create(vm("copied", mark, annotations={NONCE: "guessed"}))
        await world.cluster.create(vm(f"{RUN}-b-0009", mark, labels={}))
        await world.cluster.create(vm("somebody-elses", Mark("other-run", "other", "boot")))
        start_ns = world.clock.now_ns()
        await clean(world, PROFILE)
        cleaned_s.append((world.clock.now_ns() - start_ns) / NS)
        return await names(world)

    with open_virtual() as world:
        left = world.run(run(world))
        assert world.run(world.cluster.get(Ref(NAMESPACE, "", PROFILE.namespace)))
    assert left == {"labelled", "copied", f"{RUN}-b-0009", "somebody-elses"}
    assert cleaned_s[0] < EMPTY_LIMIT_S, "nobody waits until the VMs of others go"


def test_a_nonce_without_an_intent_is_not_ours(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        stray = vm("stray", mark_of(world, "boot"))
        assert not is_ours(world, {}, VM, stray)
        assert is_ours(world, {("VirtualMachine", PROFILE.namespace, "stray"): {""}}, VM, stray)


def test_a_known_uid_is_ours_without_the_nonce_and_only_with_the_label(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        bare = vm("bare", mark_of(world, "boot"), annotations={}, uid="u1")
        ledger = {("VirtualMachine", PROFILE.namespace, "bare"): {"u1"}}
        assert is_ours(world, ledger, VM, bare)
        other = {**bare, "metadata": {**bare["metadata"], "labels": {RUN_LABEL: "other"}}}
        assert not is_ours(world, ledger, VM, other)
        reborn = {**bare, "metadata": {**bare["metadata"], "uid": "u2"}}
        assert not is_ours(world, ledger, VM, reborn)


async def killed(world: World) -> None:
    """An attempt that ends between its VM and its commit."""
    attempt = world.results.begin(Cell("deploy", "1"))
    await ensure_golden_image(world, PROFILE, attempt)
    intend(world, attempt, [Ref(VM, PROFILE.namespace, "t1-d1-0000")])
    await world.cluster.create(vm("t1-d1-0000", mark_of(world, "deploy")))


def test_what_a_killed_attempt_created_is_found_by_its_intent(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(killed(world))
        world.results.close()
        summary = world.run(clean(world, PROFILE))
        assert world.run(_absent(world, PROFILE.namespace))
        assert world.run(_absent(world, PROFILE.golden_namespace))
    assert summary["VirtualMachine"] == 1
    assert summary["Namespace"] == 2


def test_without_the_runs_secret_nothing_is_deleted_and_the_ledger_is_blamed(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(killed(world))
        world.results.close()
        world.results.store.delete("_ledger/t1.json")
        with pytest.raises(StoreError, match=r"_ledger/t1\.json: the run's ledger is gone; put back a copy"):
            world.run(clean(world, PROFILE))
        assert world.run(names(world)) == {"t1-d1-0000"}


def test_the_secret_is_in_the_store_before_the_first_intent(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        intend(world, world.results.begin(Cell("deploy", "1")), [Ref(VM, PROFILE.namespace, "a")])
        assert world.results.store.keys("_ledger/") == ["_ledger/t1.json"]


async def _absent(world: World, name: str) -> bool:
    try:
        await world.cluster.get(Ref(NAMESPACE, "", name))
    except NotFound:
        return True
    return False


def test_clean_of_a_run_that_made_nothing_does_nothing(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        assert world.run(clean(world, PROFILE)) == {"stage": "clean"}


def test_the_way_to_the_guests_is_forgotten_when_none_is_left(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []

    async def run(world: World) -> None:
        await boot_batch(world, PROFILE, 2)
        await clean(world, PROFILE)

    with open_virtual() as world:
        inside = cast(VirtualCluster, world.runtime).server.store
        monkeypatch.setattr(world.guests, "forget", lambda: left.append(len(list(inside.objects(VM)))))
        world.run(run(world))
    assert left == [0]
