"""The data set of a guest: room is asked for first, then it is laid out by fio, then looked at.

A layout can be hollow: files of the right size whose blocks were never written are answered by the
guest's file system, not by the storage. So size, allocated blocks and unwritten extents are checked.
"""

import asyncio
import re
from dataclasses import dataclass

from infra.errors import GuestError, ToolOutputError
from infra.guests.io_scripts import CHECK_DATASET, SCRIPTS
from infra.world import World
from tasks.io_plan import DATA, GIB, LAYOUT, dataset_bytes, dataset_files, layout_job
from tasks.io_vms import Fleet
from tasks.profile import Io
from tasks.tool_output.fio import parse_fio

MARGIN = 1.02
"""Room that has to be there, of the data set's size: metadata of the file system."""
SCRIPT_LIMIT_S = 300.0
_WORD = re.compile(rb"(\w+)=(\d+)\b")


@dataclass(frozen=True, slots=True)
class Found:
    """What `check-dataset` says: files, their bytes and blocks, the hollow ones, room beside them."""

    files: int
    bytes: int
    allocated: int
    empty: int
    unwritten: int
    available: int

    def problem(self, io: Io) -> str:
        """Why this is not the data set; "" when it is."""
        files, size = dataset_files(io), dataset_bytes(io)
        if (self.files, self.bytes) != (files, size):
            return f"data set: {self.files} files of {self.bytes} bytes, not {files} of {size}"
        if self.empty or self.unwritten or self.allocated < size:
            return (
                f"data set: {self.empty} files without blocks, {self.unwritten} with unwritten extents, "
                f"{self.allocated} bytes allocated of {size}"
            )
        return ""


def read_found(said: bytes) -> Found:
    """The script's line as numbers; ToolOutputError when it is not one."""
    words = {name.decode(): int(value) for name, value in _WORD.findall(said)}
    try:
        return Found(**words)
    except TypeError:
        text = said[:200].decode(errors="replace").strip()
        raise ToolOutputError("check-dataset", "line 1", f"not what it says: {text!r}") from None


async def ensure_datasets(world: World, io: Io, fleet: Fleet) -> bool:
    """Lay the data set out in every guest that has none; True when one was. Failures make a VM broken."""
    laid = await asyncio.gather(*(_ensure(world, io, name) for name in fleet.usable))
    fleet.broken |= {name: why for name, (_, why) in zip(fleet.usable, laid, strict=True) if why}
    return any(was_laid for was_laid, _ in laid)


async def _ensure(world: World, io: Io, vm: str) -> tuple[bool, str]:
    """Whether it had to be laid out, and what is wrong."""
    guests = world.guests
    try:
        for path, script in SCRIPTS.items():
            await guests.put(vm, path, script)
        found = await _look(world, vm)
        if not found.problem(io):
            return False, ""
        room, needed = found.available + found.bytes, dataset_bytes(io) * MARGIN
        if room < needed:
            return False, f"data set: {needed / GIB:.2f} GiB are needed, {room / GIB:.2f} GiB are there"
        await guests.put(vm, LAYOUT, layout_job(io))
        command = f"fio --output-format=json+ {LAYOUT}"
        done = parse_fio(await guests.run(vm, command, io.limit_s))
        if any(job.error for job in done.jobs):
            return True, f"data set: fio's layout ended with error {done.jobs[0].error}"
        return True, (await _look(world, vm)).problem(io)
    except GuestError as error:
        return False, str(error)


async def _look(world: World, vm: str) -> Found:
    return read_found(await world.guests.run(vm, f"sh {CHECK_DATASET} {DATA}", SCRIPT_LIMIT_S))
