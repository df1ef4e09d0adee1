"""VirtualMachines that somebody else deletes while a storm needs them."""

import asyncio

from infra.cluster.kinds import VM
from infra.cluster.port import Object, Ref
from infra.world import World
from tasks.batch import Batch
from tasks.ownership import find
from tasks.profile import Profile
from tasks.requests import DELETED
from tasks.stopping import missing_vms

FIRST_LOOK_S = 20.0
"""No watch of a storm tells of a machine that is deleted before it has an instance: it is looked for, less
and less often, wherever somebody else may be."""


async def look_for_lost(world: World, profile: Profile, batch: Batch, vanished: asyncio.Queue[int]) -> None:
    """For ever; `vanished`: VMs whose instance went. That may come again, its machine does not."""
    pause_s = FIRST_LOOK_S if profile.brakes.are_on(world.name) else None
    while True:
        try:
            i = await asyncio.wait_for(vanished.get(), pause_s)
        except TimeoutError:
            pause_s = None if pause_s is None else pause_s * 2
            for i in await missing_vms(world, profile, batch):
                batch.end(i, "lost", DELETED, "foreign_change")
            continue
        if _is_gone(await find(world, Ref(VM, profile.namespace, batch.names[i])), batch.uids[i]):
            batch.end(i, "lost", DELETED, "foreign_change")


def _is_gone(found: Object | None, uid: str) -> bool:
    meta = found["metadata"] if found is not None else {}
    return meta.get("uid") != uid or "deletionTimestamp" in meta
