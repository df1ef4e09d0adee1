"""A guest of the latency stage as it is now: its boot, its units, what the runner has finished.

Everything is read from the guest, nothing is remembered here: whoever looks next time, in another
process or on another day, sees the same.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import infra.guests
from infra.errors import GuestError, StageError, ToolOutputError
from infra.world import World
from tasks.batch import NS
from tasks.latency_plan import COPIER, RUNNER, ToolPlan
from tasks.tool_output.integrity import intact

T = TypeVar("T")
COMMAND_LIMIT_S = 60.0
PAUSE_S = 10.0
LEAST_PATIENCE_S = 300.0
FETCHES = 3
"""How often a file is fetched before it is taken to be damaged."""


@dataclass(frozen=True, slots=True)
class GuestNow:
    """Seconds are the guest's uptime; `state` is systemd's ActiveState, or not-found."""

    boot_id: str
    uptime_s: float
    state: str
    started_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """What our script noted of a segment; seconds are the guest's uptime."""

    segment: int
    boot_id: str
    begin_s: float
    end_s: float
    exit: int
    sha256: str


async def patient(world: World, vm: str, limit_s: float, call: Callable[[], Awaitable[T]]) -> T:
    """Ask a guest again while it does not answer: what runs in it does not depend on us.

    Raises:
        StageError: it did not answer for that long.
    """
    start_ns = world.clock.now_ns()
    while True:
        try:
            return await call()
        except ToolOutputError:
            raise
        except GuestError as error:
            if world.clock.now_ns() - start_ns > max(limit_s, LEAST_PATIENCE_S) * NS:
                raise StageError(f"{error}; what it measured is kept in it: run again with --keep") from error
        await world.clock.sleep(PAUSE_S)


async def look(world: World, vm: str, plan: ToolPlan) -> GuestNow:
    """The guest and the tool's unit now."""
    return await patient(world, vm, plan.segment_s, lambda: _look(world, vm, plan.unit))


async def _look(world: World, vm: str, unit: str) -> GuestNow:
    boot = (await world.guests.fetch(vm, "/proc/sys/kernel/random/boot_id")).decode().strip()
    uptime = (await world.guests.fetch(vm, "/proc/uptime")).decode().split()
    shown = await world.guests.run(vm, f"systemctl show {unit}", COMMAND_LIMIT_S)
    said = dict(line.split("=", 1) for line in shown.decode().splitlines() if "=" in line)
    # a unit that ended well and was unloaded looks like one that never was: LoadState comes first
    loaded = said.get("LoadState") == "loaded"
    entered_s = int(said.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    return GuestNow(boot, float(uptime[0]), said.get("ActiveState", "") if loaded else "not-found", entered_s)


async def finished(world: World, vm: str, plan: ToolPlan) -> dict[int, Finished]:
    """The segments that are finished, by number; a torn last line is not yet one."""
    try:
        text = (await world.guests.fetch(vm, f"{plan.folder}/manifest")).decode(errors="replace")
    except GuestError:
        return {}
    found = {}
    for line in text.splitlines():
        try:
            noted = json.loads(line)
            found[int(noted["segment"])] = Finished(**noted)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


async def result(world: World, vm: str, plan: ToolPlan, noted: Finished) -> bytes:
    """The result of a finished segment, whose sum is the one that the guest noted.

    Raises:
        ToolOutputError: it is not, also when fetched again.
        StageError: the guest does not answer.
    """
    path = plan.result(noted.segment)

    async def fetched() -> bytes:
        return intact(path, await world.guests.fetch(vm, path), noted.sha256)

    for _ in range(FETCHES - 1):
        with suppress(ToolOutputError):
            return await patient(world, vm, plan.segment_s, fetched)
    return await patient(world, vm, plan.segment_s, fetched)


async def start(world: World, vm: str, plan: ToolPlan, first: int) -> None:
    """Put our script into the guest, start noise and tool; what runs already is left alone."""
    limit_s = plan.segment_s
    path, name = (RUNNER, "segments.sh") if plan.chained else (COPIER, "copies.sh")
    script = (Path(infra.guests.__path__[0]) / name).read_bytes()
    await patient(world, vm, limit_s, lambda: world.guests.put(vm, path, script))
    starts = [*([plan.start_noise()] if plan.noise else []), plan.start(first)]
    starts += [] if plan.chained else [plan.start_copies()]
    for command in (f"chmod 755 {path}", f"mkdir -p {plan.folder}", *starts):
        await patient(world, vm, limit_s, lambda command=command: _run(world, vm, command))  # type: ignore[misc]


async def _run(world: World, vm: str, command: str) -> bytes:
    try:
        return await world.guests.run(vm, command, COMMAND_LIMIT_S)
    except GuestError as error:
        if "already loaded" in str(error):
            return b""
        raise


async def is_noisy(world: World, vm: str, plan: ToolPlan) -> bool:
    """Whether the load beside the tool is alive."""
    if not plan.noise:
        return True
    seen = await patient(world, vm, plan.segment_s, lambda: _look(world, vm, plan.noise_unit))
    return seen.state == "active"


async def stop(world: World, vm: str, plan: ToolPlan) -> bytes:
    """End tool and noise; returns what stress-ng wrote, nothing where there was none."""
    await patient(world, vm, 0, lambda: world.guests.run(vm, f"systemctl stop {plan.unit}", COMMAND_LIMIT_S))
    if not plan.noise:
        return b""
    ended = f"systemctl stop {plan.noise_unit}"
    await patient(world, vm, 0, lambda: world.guests.run(vm, ended, COMMAND_LIMIT_S))
    return await patient(world, vm, 0, lambda: world.guests.fetch(vm, plan.noise_file))
