"""What happens to a batch when its watches end, break, or lose history in the middle of it."""

from functools import partial
from typing import Any

import pytest

from infra.cluster.kinds import DATA_VOLUME, POD, PVC, VM, VMI
from infra.errors import Gone, Unavailable
from infra.world import World
from tasks.batch import NS
from tasks.boot_storm import boot_batch
from tasks.deploy import deploy_batch
from tasks.provisioning import Clones
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

PROFILE = profile_of(deploy={"batches": [12]}, boot={"batches": [6]})
TIMES = tuple(i / 20 for i in range(600))
STEPS = ("pvc_bound_s", "datavolume_succeeded_s", "deployed_s")


def disturbed(
    world: World, error: Exception | None, at_s: tuple[float, ...], *, forget: bool = False
) -> None:
    """End our own kind of watches at these virtual seconds from now; controllers resume as well."""
    inside: Any = world.runtime
    for kind in (VM, DATA_VOLUME, PVC, VMI, POD):
        end = partial(inside.server.hub(kind).end_all, error, forget_history=forget)
        for seconds in at_s:
            inside.loop.call_later(seconds, end)


def deployed(open_virtual: OpenWorld, error: Exception | None, *, forget: bool = False) -> tuple[Any, Any]:
    with open_virtual() as world:
        disturbed(world, error, TIMES, forget=forget)
        summary = world.run(deploy_batch(world, PROFILE, 12))
        return summary, rows(world, "vm_deploys")


def test_watches_that_end_cleanly_are_no_reason(open_virtual: OpenWorld) -> None:
    summary, vms = deployed(open_virtual, None)
    assert summary["verdict"] == "valid"
    assert all(vm[step] is not None for vm in vms for step in STEPS)


def test_a_watch_that_was_resumed_is_counted_in_the_second_in_which_it_was(open_virtual: OpenWorld) -> None:
    with open_virtual('[[fault]]\nkind = "watch-ends"\nstage = "boot"\nevery_s = 2\nfor_s = 7\n') as world:
        world.run(boot_batch(world, PROFILE, 6))
        seconds = [row for row in rows(world, "observer") if row["stage"] == "boot"]
    assert {row["second"]: row["resumed"] for row in seconds if row["resumed"]} == {0: 3, 2: 3}


def test_broken_connections_lose_no_step(open_virtual: OpenWorld) -> None:
    summary, vms = deployed(open_virtual, Unavailable("reset"))
    assert summary["n_ok"] == 12
    assert all(vm[step] is not None for vm in vms for step in STEPS)


def test_lost_history_is_listed_again_and_loses_no_vm(open_virtual: OpenWorld) -> None:
    summary, vms = deployed(open_virtual, Gone("too old"), forget=True)
    assert summary["n_ok"] == 12
    assert {vm["state"] for vm in vms} == {"ok"}


def test_a_storm_survives_lost_history(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        disturbed(world, Gone("too old"), TIMES, forget=True)
        summary = world.run(boot_batch(world, PROFILE, 6))
    assert summary["n_ok"] == 6


def test_an_observer_that_dies_of_a_defect_ends_the_batch_and_is_not_waited_for(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a defect")

    with open_virtual() as world:
        monkeypatch.setattr(Clones, "data_volume", broken)
        start_ns = world.clock.now_ns()
        with pytest.raises(KeyError, match="a defect"):
            world.run(deploy_batch(world, PROFILE, 12))
        assert (world.clock.now_ns() - start_ns) / NS < PROFILE.deploy.limit_s
