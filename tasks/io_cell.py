"""One cell of the io stage: a baseline, then the load; in each phase all VMs start at an agreed instant.

Every guest's fio runs by itself and writes to the guest's own memory disk; results are fetched, parsed
and dropped one by one, so memory does not grow with the fleet.
"""

import asyncio
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.errors import GuestError, ToolOutputError
from infra.guests.io_scripts import START_AT
from infra.results.port import Attempt
from infra.world import World
from tasks.analysis.histograms import Histogram
from tasks.analysis.io_cells import (
    GIB,
    QUANTILES,
    Merged,
    VmResult,
    cell_row,
    histogram_rows,
    is_saturated,
    vm_rows,
)
from tasks.analysis.verdicts import BatchFacts, verdict
from tasks.io_plan import JOBS, Asked, IoCell, baseline_of, dataset_bytes, load_of
from tasks.io_vms import Fleet, look_at_placement
from tasks.profile import Profile
from tasks.tool_output.fio import FioDirection, parse_fio
from tasks.tool_output.fio_verdict import FioExpectation, judge

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PATIENCE_S = 300.0
"""How much longer than it should take a guest's fio may be waited for."""
_STARTED = re.compile(rb"started_ns=(\d+) clock_error_s=(\S+)")


@dataclass(slots=True)
class Phase:
    """One phase while it is measured: what was asked, when, and what came back."""

    cell: IoCell
    asked: Asked
    at: datetime
    merged: Merged = field(default_factory=Merged)
    of_vms: list[dict[str, Any]] = field(default_factory=list)

    @property
    def at_ns(self) -> int:
        """The agreed instant, ns since 1970."""
        return (self.at - EPOCH) // timedelta(microseconds=1) * 1000

    @property
    def unit(self) -> str:
        """Name of the guest's unit: another one for every start."""
        return f"virtscale-io-{self.cell.section(self.asked.phase)}-{self.at_ns // 10**9}"


async def measure_cell(
    world: World, profile: Profile, attempt: Attempt, cell: IoCell, fleet: Fleet
) -> list[dict[str, Any]]:
    """Measure baseline and load, spool their rows, and return those of `io_cells`."""
    io = profile.io
    rows = []
    for asked in (baseline_of(io, cell), load_of(io, cell)):
        await world.clock.sleep(io.pause_s)
        phase = Phase(cell, asked, world.clock.wall() + timedelta(seconds=io.lead_s))
        results = await _run(world, profile, phase, fleet)
        await look_at_placement(world, profile, fleet)
        row = _cell_row(profile, phase, results, fleet)
        keys = _keys(phase)
        attempt.add("io_vms", [{**keys, **each} for each in vm_rows(results)])
        whole = histogram_rows(phase.merged.histogram(), None)
        attempt.add("io_histograms", [{**keys, **each} for each in (*whole, *phase.of_vms)])
        attempt.add("io_cells", [row])
        rows.append(row)
    return rows


def _keys(phase: Phase) -> dict[str, Any]:
    return {**phase.cell._asdict(), "phase": phase.asked.phase}


async def _run(world: World, profile: Profile, phase: Phase, fleet: Fleet) -> list[VmResult]:
    """Start fio in every usable guest at the agreed instant; one result for every VM."""
    fetched = [_one(world, profile, phase, (fleet, i)) for i in range(len(fleet.names))]
    return list(await asyncio.gather(*fetched))


async def _one(world: World, profile: Profile, phase: Phase, who: tuple[Fleet, int]) -> VmResult:
    fleet, i = who
    vm, section = fleet.names[i], phase.cell.section(phase.asked.phase)
    node = fleet.placed.get(vm) or None
    if vm in fleet.broken:
        return VmResult(vm, node, "failed", fleet.broken[vm])
    output = f"/run/virtscale/{section}.json"
    fio = f"fio --output-format=json+ --output={output} --section={section} {JOBS}"
    io, run_s = profile.io, phase.asked.run_s
    pause_s = phase.asked.pause_us / 1e6
    limit_s = io.lead_s + io.ramp_s + run_s + 2 * pause_s + PATIENCE_S
    try:
        said = await world.guests.run(vm, f"sh {START_AT} {phase.unit} {phase.at_ns} {fio}", limit_s)
        body = await world.guests.fetch(vm, output)
        return _result(profile, phase, VmResult(vm, node, "ok"), (said, body, i))
    except ToolOutputError as error:
        return VmResult(vm, node, "failed", str(error))
    except GuestError as error:
        state = "timeout" if isinstance(error.__cause__, TimeoutError) else "failed"
        return VmResult(vm, node, state, str(error))


def _result(profile: Profile, phase: Phase, known: VmResult, said: tuple[bytes, bytes, int]) -> VmResult:
    """One guest's output as a result, its bins merged into the phase's.

    Raises:
        ToolOutputError: the output is damaged, of another phase or moment, or not of a good run.
    """
    words, body, place = said
    run = parse_fio(body)
    found = judge(run, FioExpectation(runtime_s=phase.asked.run_s, jobs=1, with_bins=True))
    if found.verdict != "complete":
        raise ToolOutputError("fio", f"guest {known.vm}", "; ".join(found.reasons))
    job, section = run.job, phase.cell.section(phase.asked.phase)
    if job.name != section or run.finished_ms < phase.at_ns // 10**6:
        raise ToolOutputError("fio", f"guest {known.vm}", f"job {job.name} is not {section} of this phase")
    (done,) = job.directions
    bins: Histogram = done.clat.bins or ()
    phase.merged.add(bins)
    if profile.io.keep_vm_histograms:
        phase.of_vms += [{**_keys(phase), **each} for each in histogram_rows(bins, known.vm)]
    return _with_numbers(known, done, phase.asked.bytes_per_s[place], _start_of(words, phase))


def _start_of(said: bytes, phase: Phase) -> tuple[float | None, float | None]:
    """How long after the agreed instant fio was started, and how wrong that may be, ms; None: not said."""
    found = _STARTED.search(said)
    if found is None:
        return None, None
    error = found[2].decode(errors="replace")
    error_ms = float(error) * 1000 if error.replace(".", "", 1).isdecimal() else None
    return (int(found[1]) - phase.at_ns) / 1e6, error_ms


def _with_numbers(
    known: VmResult, done: FioDirection, asked: int, start: tuple[float | None, float | None]
) -> VmResult:
    of_fio = dict(done.clat.percentiles)
    return VmResult(
        vm=known.vm,
        node=known.node,
        state="ok",
        asked_gib_per_s=asked / GIB if asked else None,
        iops=done.iops,
        gib_per_s=done.bytes_per_s / GIB,
        percentiles_us=tuple(of_fio[q] / 1000 for q in QUANTILES),
        max_us=done.clat.max_ns / 1000,
        started_ms=start[0],
        clock_error_ms=start[1],
    )


def _cell_row(profile: Profile, phase: Phase, results: list[VmResult], fleet: Fleet) -> dict[str, Any]:
    asked, limits = phase.asked, profile.limits
    row = cell_row(results, phase.merged.histogram(), asked.asked_gib_per_s)
    loaded = asked.phase == "load"
    states = [each.state for each in results]
    facts = BatchFacts(
        n=row["n"],
        n_ok=row["n_ok"],
        n_timeout=states.count("timeout"),
        n_failed=states.count("failed"),
        other=tuple(_reasons(profile, row, fleet)),
    )
    grade, reasons = verdict(facts, limits)
    return {
        **_keys(phase),
        **row,
        "saturated": is_saturated(row, limits.io_saturated_share) if loaded else None,
        "depth": asked.depth,
        "pause_us": asked.pause_us if not loaded else None,
        "run_s": asked.run_s,
        "released_at": phase.at,
        "dataset_gib": dataset_bytes(profile.io) * phase.cell.vms / GIB,
        "verdict": grade,
        "reasons": reasons,
    }


def _reasons(profile: Profile, row: dict[str, Any], fleet: Fleet) -> list[tuple[str, str]]:
    """What makes a phase doubtful besides VMs without a result."""
    found = []
    skew_ms, limit_ms = row["start_skew_ms"], profile.limits.io_start_skew_ms
    if skew_ms is None and row["n_ok"]:
        found.append(("start_skew", "not known: a guest did not say how wrong its clock is"))
    elif skew_ms is not None and skew_ms > limit_ms:
        found.append(("start_skew", f"VMs started {skew_ms:.0f} ms apart, more than {limit_ms:g} ms"))
    if row["gib_per_s"] is not None and row["gib_per_s"] > profile.io.cap_gib_per_s:
        cap = profile.io.cap_gib_per_s
        found.append(("above_cap", f"{row['gib_per_s']:.3f} GiB/s, more than the cap of {cap:g} GiB/s"))
    moved = fleet.misplaced()
    if moved:
        found.append(("misplaced", f"{len(moved):,} VMs are not on their node, {moved[0]} first"))
    return found
