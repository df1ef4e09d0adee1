"""One share of a batch in a process of its own: the stages' functions, observers and a clock of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from infra.errors import StageError
from infra.guests.ssh.folder import key_folder
from infra.manifests import disk_name
from infra.world import World, open_world
from tasks.batch import Batch
from tasks.boot_storm import Boots, start_vms
from tasks.deletion import Volume, delete_vms
from tasks.profile import Profile
from tasks.provisioning import Clones, Plan, provision
from tasks.run import RunRequest
from tasks.shards.link import Link, linked
from tasks.shards.share import Found, Share, batch_of, found_of
from tasks.stopping import stop_vms

LOOK_S = 0.1
Told = dict[str, Any]
Job = Callable[[World, Profile, Batch, Told], Awaitable[float]]


def take_share(request: RunRequest, share: Share) -> Found:
    """Take a share in a world of its own; the run's store is not needed for that.

    Raises:
        VirtscaleError: the cluster cannot be reached, or an observer could not go on.
    """
    with TemporaryDirectory() as nowhere:
        spec = replace(request.spec(), store=nowhere, nonce=share.nonce)
        if spec.guests is not None and not (key_folder(spec.run_id) / "key").exists():
            raise StageError(f"no SSH key of run {spec.run_id} here: share VIRTSCALE_STATE with this worker")
        with open_world(spec) as world:
            return world.run(taken(world, request.profile, share))


async def taken(world: World, profile: Profile, share: Share) -> Found:
    """Take a share in this world; stopped before its end, its open VMs are lost.

    Raises:
        StageError: an observer could not go on.
    """
    batch, told, link = batch_of(share), dict(share.more), Link(share.number, share.slots)
    own = replace(world, workers=None, shard=link)
    working = asyncio.ensure_future(JOBS[share.stage](own, profile, batch, told))
    try:
        with linked(share.token, link):
            while not working.done():
                await asyncio.wait({working}, timeout=LOOK_S)
                if not link.obey():
                    working.cancel()
    finally:
        working.cancel()
    if working.cancelled():
        batch.close("lost", "interrupted")
    gap_s = 0.0 if working.cancelled() else working.result()
    return found_of(batch, gap_s, link.late_ns, told)


async def _boot(world: World, profile: Profile, batch: Batch, told: Told) -> float:
    boots = Boots(batch, world.guests)
    told |= {"nodes": boots.nodes, "lost": boots.lost}
    gap_s = await start_vms(world, profile, boots)
    boots.explain()
    return gap_s


async def _deploy(world: World, profile: Profile, batch: Batch, told: Told) -> float:
    clones = Clones(batch)
    plan = Plan(**told.pop("plan"), names=batch.names)
    told |= {"copied": clones.copied, "failures": 0}
    gap_s = await provision(world, profile, plan, clones)
    told["failures"] = clones.failures
    return gap_s


async def _delete(world: World, profile: Profile, batch: Batch, told: Told) -> float:
    claims = {disk_name(name) for name in batch.names}
    volumes = [Volume(*each) for each in told.pop("volumes")]
    return await delete_vms(world, profile, batch, [each for each in volumes if each.claim in claims])


async def _stop(world: World, profile: Profile, batch: Batch, _: Told) -> float:
    return await stop_vms(world, profile, batch)


JOBS: dict[str, Job] = {"boot": _boot, "deploy": _deploy, "delete": _delete, "stop": _stop}
"""By the batch's stage: how it is driven and observed; the longest gap of an observer, seconds."""
