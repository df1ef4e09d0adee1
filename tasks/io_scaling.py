"""IO scaling: a growing fleet, equally many VMs on every node, reads and writes under one total cap.

Of each size its VMs come first, up and in their places with data sets laid out and looked at; then each
cell is a step and a commit of its own, with its baseline. VMs and data sets stay for the next size; after
the last one they are deleted. A step that does not find them makes them again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from infra.results.port import Attempt, Cell
from infra.world import World
from tasks.analysis.verdicts import worst
from tasks.deploy import remove_vms
from tasks.io_cell import measure_cell
from tasks.io_dataset import ensure_datasets
from tasks.io_plan import END, JOBS, IoCell, cell_of, measuring_jobs, phases_of
from tasks.io_vms import STAGE, Fleet, chosen_nodes, ensure_fleet, fleet_of, know_volumes
from tasks.profile import Profile

Summary = dict[str, Any]


async def io_step(world: World, profile: Profile, cell: str, repeat: int = 1) -> Summary:
    """One step: `4` makes four VMs per node ready, `4-64-read` measures a cell of theirs, `end` deletes all.

    Raises:
        StageError: there is no room for the VMs, or none is up; what was measured stays committed.
    """
    per_node, _, access = cell.partition("-")
    if cell == END:
        return await io_end(world, profile)
    if access:
        return await io_cell(world, profile, (int(per_node), access), repeat)
    return await io_size(world, profile, int(per_node), repeat)


async def io_size(world: World, profile: Profile, per_node: int, repeat: int = 1) -> Summary:
    """Make the VMs of one size ready; the summary says on which nodes they are and which are broken.

    Raises:
        StageError: there is no room for the VMs, or none is up.
    """
    fleet = fleet_of(world, await chosen_nodes(world, profile), per_node)

    async def ready(attempt: Attempt) -> Summary:
        await _ensure(world, profile, attempt, fleet)
        await know_volumes(world, profile, attempt, fleet)
        counts = {"vms": len(fleet.names), "ready": len(fleet.usable)}
        return {"stage": STAGE, **counts, "nodes": fleet.nodes, "broken": fleet.broken}

    return await _committed(world, profile, Cell(STAGE, str(per_node), repeat), ready)


async def io_cell(world: World, profile: Profile, what: tuple[int, str], repeat: int = 1) -> Summary:
    """Measure one cell (VMs per node, access) with its baseline, and return its headline.

    Raises:
        StageError: its VMs were gone and could not be made again.
    """
    per_node, access = what
    fleet = await _fleet_before(world, profile, per_node, repeat)
    cell = cell_of(len(fleet.names), per_node, access)

    async def measured(attempt: Attempt) -> Summary:
        if await _ensure(world, profile, attempt, fleet):
            await know_volumes(world, profile, attempt, fleet)
        await _put_jobs(world, profile, cell, fleet)
        return headline(cell, await measure_cell(world, profile, attempt, cell, fleet))

    return await _committed(world, profile, Cell(STAGE, cell.name, repeat), measured)


async def io_end(world: World, profile: Profile) -> Summary:
    """Delete the VMs of the stage with their data sets."""

    async def removed(_: Attempt) -> Summary:
        await remove_vms(world, profile, STAGE)
        return {"stage": STAGE}

    return await _committed(world, profile, Cell(STAGE, END), removed)


async def _committed(
    world: World, profile: Profile, cell: Cell, take: Callable[[Attempt], Awaitable[Summary]]
) -> Summary:
    """Commit what `take` does with the cluster's state; when something ends it early, the VMs are deleted."""
    attempt = world.results.begin(cell)
    done = False
    try:
        summary = await take(attempt)
        attempt.commit(summary, state=world.runtime.state())
        done = True
    finally:
        if not done:
            attempt.flush()
            await remove_vms(world, profile, STAGE)
            attempt.commit({"interrupted": True}, complete=False, state=world.runtime.state())
    return summary


async def _fleet_before(world: World, profile: Profile, per_node: int, repeat: int) -> Fleet:
    """The fleet that was made ready for a size: its nodes are not chosen again for each cell."""
    size = world.results.last_complete(Cell(STAGE, str(per_node), repeat))
    if size is None:
        return fleet_of(world, await chosen_nodes(world, profile), per_node)
    fleet = fleet_of(world, [(name, host) for name, host in size.summary["nodes"]], per_node)
    fleet.broken = dict(size.summary["broken"])
    return fleet


async def _ensure(world: World, profile: Profile, attempt: Attempt, fleet: Fleet) -> bool:
    """VMs up, data sets there and settled; True when VMs had to be made."""
    made = await ensure_fleet(world, profile, attempt, fleet)
    if await ensure_datasets(world, profile.io, fleet):
        await world.clock.sleep(profile.io.settle_s)
    return made


async def _put_jobs(world: World, profile: Profile, cell: IoCell, fleet: Fleet) -> None:
    """Give every guest its own job file: its rates and its own random offsets."""
    place = {name: i for i, name in enumerate(fleet.names)}
    phases = phases_of(profile.io, [cell])
    jobs = {name: measuring_jobs(profile.io, phases, name, place[name]) for name in fleet.usable}
    await asyncio.gather(*(world.guests.put(name, JOBS, job) for name, job in jobs.items()))


def headline(cell: IoCell, rows: list[dict[str, Any]]) -> Summary:
    """The summary of a cell: its load, and the worst verdict of both phases."""
    load = rows[-1]
    names = ("iops", "gib_per_s", "saturated", "p50_us", "p99_us", "n", "n_ok")
    return {
        "stage": STAGE,
        "cell": cell.name,
        **{name: load[name] for name in names},
        "verdict": worst(row["verdict"] for row in rows),
        "reasons": [f"{row['phase']}: {reason}" for row in rows for reason in row["reasons"]],
    }
