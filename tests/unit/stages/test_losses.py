"""A machine that somebody deletes before it has an instance is found missing long before a storm's limit."""

import asyncio

import pytest

from infra.cluster.kinds import VM
from infra.cluster.port import Ref
from infra.errors import StageError
from infra.results.port import Cell
from infra.world import World
from tasks.batch import Batch
from tasks.boot_vms import boot_names, ensure_boot_vms
from tasks.losses import FIRST_LOOK_S, look_for_lost
from tasks.requests import DELETED
from tests.unit.stages.conftest import OpenWorld, profile_of


def looked(open_virtual: OpenWorld, *, is_shared: bool) -> list[tuple[str, str | None]]:
    """States of two machines a minute after the second was deleted."""
    profile = profile_of(brakes={"active": is_shared})

    async def look(world: World) -> list[tuple[str, str | None]]:
        await ensure_boot_vms(world, profile, world.results.begin(Cell("boot", "2")))
        batch = Batch("boot", boot_names(world.run_id, profile))
        looking = asyncio.ensure_future(look_for_lost(world, profile, batch, asyncio.Queue()))
        await world.cluster.delete(Ref(VM, profile.namespace, batch.names[1]))
        await world.clock.sleep(3 * FIRST_LOOK_S + 5)
        looking.cancel()
        return list(zip(batch.state, batch.reason, strict=True))

    with open_virtual() as world:
        return world.run(look(world))


def test_it_is_looked_for_where_somebody_else_may_be(open_virtual: OpenWorld) -> None:
    assert looked(open_virtual, is_shared=True) == [("", None), ("lost", DELETED)]


def test_nobody_looks_where_nobody_else_is(open_virtual: OpenWorld) -> None:
    assert looked(open_virtual, is_shared=False) == [("", None), ("", None)]


def test_machines_that_cannot_be_made_are_named_with_the_cause(open_virtual: OpenWorld) -> None:
    profile = profile_of(deploy={"batches": [2], "limit_s": 0.001})
    said = r"VirtualMachine virtscale/\S+ and 1 others cannot be made: not within deploy\.limit_s = 0\.001 s"
    with open_virtual() as world, pytest.raises(StageError, match=said):
        world.run(ensure_boot_vms(world, profile, world.results.begin(Cell("boot", "2"))))
