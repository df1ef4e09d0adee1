"""IO scaling: a growing fleet, equally many VMs on every node, reads and writes under one total cap.

One size is one step: VMs up and in their places, data sets laid out and looked at, then its cells in a
drawn order, each committed by itself with its baseline, and at last the size as a whole. VMs and data
sets stay for the next size; after the last one they are deleted.
"""

import asyncio
from typing import Any

from infra.results.port import Attempt, Cell
from infra.world import World
from tasks.analysis.verdicts import worst
from tasks.deploy import remove_vms
from tasks.io_cell import measure_cell
from tasks.io_dataset import ensure_datasets
from tasks.io_plan import JOBS, IoCell, cells_of, in_order, measuring_jobs, phases_of
from tasks.io_vms import STAGE, Fleet, ensure_fleet, know_volumes
from tasks.profile import Profile


async def io_size(world: World, profile: Profile, per_node: int, repeat: int = 1) -> dict[str, Any]:
    """Measure all cells of one size that are not committed yet, and return the size's headline.

    Raises:
        StageError: there is no room for the VMs, or none is up; what was measured stays committed.
    """
    attempt = world.results.begin(Cell(STAGE, str(per_node), repeat))
    done = False
    try:
        summary = await _measure(world, profile, attempt, per_node)
        attempt.commit(summary, state=world.runtime.state())
        done = True
    finally:
        if not done:
            attempt.flush()
            await remove_vms(world, profile, STAGE)
            attempt.commit({"interrupted": True}, complete=False, state=world.runtime.state())
    return summary


async def _measure(world: World, profile: Profile, attempt: Attempt, per_node: int) -> dict[str, Any]:
    repeat, io = attempt.cell.repeat, profile.io
    fleet = await ensure_fleet(world, profile, attempt, per_node)
    await know_volumes(world, profile, attempt, fleet)
    if await ensure_datasets(world, io, fleet):
        await world.clock.sleep(io.settle_s)
    cells = cells_of(io, len(fleet.names), per_node)
    await _put_jobs(world, profile, cells, fleet)
    summaries = [
        await _cell(world, profile, cell, (fleet, repeat)) for cell in in_order(cells, world.run_id, repeat)
    ]
    if (per_node, repeat) == (io.vms_per_node[-1], io.repeats):
        await remove_vms(world, profile, STAGE)
    return {
        "stage": STAGE,
        "vms": len(fleet.names),
        "cells": len(summaries),
        "saturated": sum(bool(each["saturated"]) for each in summaries),
        "of_cells": summaries,
        "verdict": worst(each["verdict"] for each in summaries),
        "reasons": [f"{each['cell']}: {reason}" for each in summaries for reason in each["reasons"]],
    }


async def _put_jobs(world: World, profile: Profile, cells: list[IoCell], fleet: Fleet) -> None:
    """Give every guest its own job file: its rates and its own random offsets."""
    place = {name: i for i, name in enumerate(fleet.names)}
    phases = phases_of(profile.io, cells)
    jobs = {name: measuring_jobs(profile.io, phases, name, place[name]) for name in fleet.usable}
    await asyncio.gather(*(world.guests.put(name, JOBS, job) for name, job in jobs.items()))


async def _cell(world: World, profile: Profile, cell: IoCell, where: tuple[Fleet, int]) -> dict[str, Any]:
    """Measure one cell and commit it; one that is committed is not measured again."""
    fleet, repeat = where
    key = Cell(STAGE, cell.name, repeat)
    committed = world.results.last_complete(key)
    if committed is not None:
        return dict(committed.summary)
    attempt = world.results.begin(key)
    done = False
    try:
        rows = await measure_cell(world, profile, attempt, cell, fleet)
        summary = headline(cell, rows)
        attempt.commit(summary)
        done = True
    finally:
        if not done:
            attempt.flush()
            attempt.commit({"interrupted": True}, complete=False)
    return summary


def headline(cell: IoCell, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary of a cell: its load, and the worst verdict of both phases."""
    load = rows[-1]
    names = ("iops", "gib_per_s", "saturated", "p50_us", "p99_us", "n", "n_ok")
    return {
        "cell": cell.name,
        **{name: load[name] for name in names},
        "verdict": worst(row["verdict"] for row in rows),
        "reasons": [f"{row['phase']}: {reason}" for row in rows for reason in row["reasons"]],
    }
