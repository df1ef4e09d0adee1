"""Latency: one tool for minutes or days in two real-time VMs, in segments that are committed one by one.

The tool runs in the guests, as a systemd unit, and depends on nothing outside. This stage only looks:
which segments are finished and not yet stored. Killed and started again, even days later, it finds
the guests at work and goes on. Cells: `<tool>-s0` holds the set-up (and the virtual cluster's state),
`<tool>-s<k>` segment k, `<tool>` the end of it all.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from infra.errors import StageError, ToolOutputError
from infra.results.port import Cell, Commit
from infra.world import World
from tasks.deploy import remove_vms
from tasks.latency_guest import Finished, finished, is_noisy, look, result, start, stop
from tasks.latency_plan import GAP_S, ToolPlan, plan_of
from tasks.latency_rows import Part, headline, histogram_rows, parts_of, reflected, run_rows, since
from tasks.latency_vms import STAGE, are_up, ensure_up, vm_names
from tasks.profile import LatencyTool, Profile
from tasks.tool_output.l2reflect import L2ReflectRun
from tasks.tool_output.stress_ng import parse_stress_ng

NOISE_GONE = "noise_gone: stress-ng was not running beside it"
REBOOTED = "rebooted: the series is split here"
LATE_SHARE = 0.5
"""A segment that takes longer than its time and this share of it, and a minute, is given up."""
LOOKS_S = 60.0
"""How long the last segment may be looked at and fetched before the tool is ended."""
POLLS = 100
"""How often in the time of a segment is looked for one that is late."""


@dataclass(frozen=True, slots=True)
class Series:
    """The tool at work in the guests: their boots, by VM; none of a long process may change.

    It is not ended before `until`: what comes after it does not depend on when somebody looked.
    """

    plan: ToolPlan
    boots: dict[str, str]
    until: datetime

    def cell(self, segment: int | None = None) -> Cell:
        """Of a segment (0: the set-up) or of the whole."""
        return cell_of(self.plan, segment)


def cell_of(plan: ToolPlan, segment: int | None = None) -> Cell:
    """The unit of commit of a segment, or of the whole tool."""
    return Cell(STAGE, plan.tool if segment is None else f"{plan.tool}-s{segment}")


async def latency_tool(world: World, profile: Profile, tool: LatencyTool) -> dict[str, Any]:
    """Measure with one tool from set-up to removal, and return its headline.

    Raises:
        StageError: the VMs cannot be made, or their guests cannot be reached; segments so far are kept.
    """
    if not world.guests.steps:
        raise StageError(f"latency {tool}: no guest can be reached in this world; leave the stage out")
    plan = plan_of(profile.latency, tool)
    series = await _begin(world, profile, plan)
    for segment in range(1, plan.segments + 1):
        if _stored(world, series, segment) is None:
            await _measure(world, series, segment)
    await world.clock.sleep(max(0.0, (series.until - world.clock.wall()).total_seconds()))
    attempt = world.results.begin(series.cell())
    noise = [await _ended(world, vm, plan) for vm in series.boots]
    await remove_vms(world, profile, STAGE)
    summary = {**_whole(world, series), "noise": min(noise, default=None)}
    attempt.commit(summary, state=world.runtime.state())
    return summary


async def _begin(world: World, profile: Profile, plan: ToolPlan) -> Series:
    """Find the tool at work, or set it up."""
    set_up = world.results.last_complete(cell_of(plan, 0))
    if set_up is not None and await are_up(world, profile):
        boots = await _at_work(world, plan)
        if boots == set_up.summary["boots"]:
            return Series(plan, boots, datetime.fromisoformat(set_up.summary["until"]))
    return await _set_up(world, profile, plan)


async def _at_work(world: World, plan: ToolPlan) -> dict[str, str]:
    """The boots of the guests in which the tool's unit is loaded."""
    seen = {vm: await look(world, vm, plan) for vm in vm_names(world)}
    return {vm: now.boot_id for vm, now in seen.items() if now.state != "not-found"}


async def _set_up(world: World, profile: Profile, plan: ToolPlan) -> Series:
    attempt = world.results.begin(cell_of(plan, 0))
    await ensure_up(world, profile, attempt)
    first = 1
    if plan.chained:
        # what is stored was measured, whichever guest did it; a long process has to begin again
        stored = (
            world.results.last_complete(cell_of(plan, segment)) for segment in range(1, plan.segments + 1)
        )
        first += next((i for i, commit in enumerate(stored) if commit is None), plan.segments)
    for vm in vm_names(world):
        await start(world, vm, plan, first)
    lasts = timedelta(seconds=plan.segments * (plan.segment_s + GAP_S) + LOOKS_S)
    series = Series(plan, await _at_work(world, plan), world.clock.wall() + lasts)
    missing = [vm for vm in vm_names(world) if vm not in series.boots]
    if missing:
        raise StageError(f"guest {missing[0]}: {plan.tool} did not start; is it installed in the image?")
    summary = {"stage": STAGE, "tool": plan.tool, "first": first, "boots": series.boots}
    summary["until"] = series.until.isoformat()
    attempt.commit(summary, state=world.runtime.state())
    return series


def _stored(world: World, series: Series, segment: int) -> Commit | None:
    """The commit of a segment of this series."""
    commit = world.results.last_complete(series.cell(segment))
    if commit is None or (not series.plan.chained and commit.summary["boots"] != series.boots):
        return None
    return commit


async def _measure(world: World, series: Series, segment: int) -> None:
    """Wait for one segment in every VM, and commit it."""
    plan = series.plan
    attempt = world.results.begin(series.cell(segment))
    rows: list[dict[str, Any]] = []
    measured = _chained if plan.chained else _long
    for vm in series.boots:
        parts, reason = await measured(world, vm, plan, segment)
        if not await is_noisy(world, vm, plan):
            reason = reason or NOISE_GONE
        rows += run_rows(plan, vm, segment, parts, reason)
        attempt.add("latency_histograms", histogram_rows(plan, vm, segment, parts))
    attempt.add("latency_runs", rows)
    summary = {"stage": STAGE, "tool": plan.tool, "segment": segment, "boots": series.boots}
    attempt.commit({**summary, **headline(rows)})


async def _chained(world: World, vm: str, plan: ToolPlan, segment: int) -> tuple[list[Part], str]:
    """A segment that our runner measured: its parts, or the reason why there are none."""
    noted, found = await _awaited(world, vm, plan, segment)
    if noted is None:
        return [], found
    if noted.exit != 0:
        return [], f"{plan.tool} ended with exit code {noted.exit}"
    before = (await finished(world, vm, plan)).get(segment - 1)
    same = before is not None and before.boot_id == noted.boot_id
    since_s = before.end_s if before is not None and same else noted.begin_s
    try:
        body = await result(world, vm, plan, noted)
        parts = parts_of(plan, body, noted.end_s - since_s)
    except ToolOutputError as error:
        return [], str(error)
    return parts, REBOOTED if before is not None and not same else ""


async def _awaited(world: World, vm: str, plan: ToolPlan, segment: int) -> tuple[Finished | None, str]:
    """What is noted of a segment, once it is finished; else the reason why it never will be."""
    while True:
        now, noted = await look(world, vm, plan), await finished(world, vm, plan)
        if not plan.chained:
            # what an earlier process wrote is on the disk still
            noted = {number: each for number, each in noted.items() if each.boot_id == now.boot_id}
        if segment in noted:
            return noted[segment], ""
        if now.state != "active":
            return None, f"the unit of {plan.tool} is {now.state} before segment {segment} was finished"
        ends = [each.end_s for each in noted.values() if each.boot_id == now.boot_id]
        due_s = max(ends, default=now.started_s) + plan.segment_s + GAP_S - now.uptime_s
        if due_s < -(plan.segment_s * LATE_SHARE + 60):
            return None, f"not finished {-due_s:.0f} s after its time"
        await world.clock.sleep(due_s if due_s > 0 else max(1.0, plan.segment_s / POLLS))


async def _long(world: World, vm: str, plan: ToolPlan, segment: int) -> tuple[list[Part], str]:
    """What a long process measured between two copies of its file; else the reason why that is not known."""
    noted, found = await _awaited(world, vm, plan, segment)
    if noted is None:
        return [], found
    if noted.exit != 0:
        return [], f"{plan.tool} did not write its file: exit code {noted.exit}"
    try:
        now = reflected(await result(world, vm, plan, noted))
    except ToolOutputError as error:
        return [], str(error)
    before, since_s = await _copy_before(world, vm, plan, noted)
    part = since(before, now, plan.cpus[0], noted.end_s - since_s)
    if part.n <= 0:
        return [], "stalled: no round was completed since the copy before"
    return [part], ""


async def _copy_before(
    world: World, vm: str, plan: ToolPlan, noted: Finished
) -> tuple[L2ReflectRun | None, float]:
    """The last copy before that one which can be read, and its uptime; without one, that of the start."""
    of_boot = [each for each in (await finished(world, vm, plan)).values() if each.boot_id == noted.boot_id]
    for earlier in sorted(of_boot, key=lambda each: each.segment, reverse=True):
        if earlier.segment < noted.segment and earlier.exit == 0:
            with suppress(ToolOutputError):
                return reflected(await result(world, vm, plan, earlier)), earlier.end_s
    return None, (await look(world, vm, plan)).started_s


async def _ended(world: World, vm: str, plan: ToolPlan) -> int:
    """End tool and noise in a guest; returns the operations that stress-ng did, -1 when it did not say."""
    body = await stop(world, vm, plan)
    if not plan.noise:
        return 0
    try:
        return sum(stressor.bogo_ops for stressor in parse_stress_ng(body).stressors)
    except ToolOutputError:
        return -1


def _whole(world: World, series: Series) -> dict[str, Any]:
    """The headline over all segments."""
    plan = series.plan
    commits = [_stored(world, series, segment) for segment in range(1, plan.segments + 1)]
    found = [commit.summary for commit in commits if commit is not None]
    maxima = [each["max_us"] for each in found if each["max_us"] is not None]
    return {
        "stage": STAGE,
        "tool": plan.tool,
        "segments": len(found),
        "samples": sum(each["samples"] for each in found),
        "max_us": max(maxima, default=None),
        "coverage": min((each["coverage"] for each in found if each["coverage"] is not None), default=None),
        "not_ok": sum(each["not_ok"] for each in found),
    }
