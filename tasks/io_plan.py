"""PURE. What the io stage asks of its guests: the cap split, depth and pacing, fio's job files, the order.

Rates are bytes a second. The cap is split exactly: the remainder goes, a byte each, to the first VMs.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import NamedTuple

from tasks.profile import Io

GIB = 1024**3
MIB = 1024**2
DATA = "/var/lib/virtscale/io/data"
"""Folder of the data set in every guest."""
JOBS = "/run/virtscale/io.fio"
LAYOUT = "/run/virtscale/layout.fio"
END = "end"
"""The step, and its cell, that deletes the VMs."""


class IoCell(NamedTuple):
    """One measured combination: so many VMs, one block size, one pattern (read or write)."""

    vms: int
    vms_per_node: int
    block_kib: int
    pattern: str

    @property
    def name(self) -> str:
        """Its name in commits: `258-4-read`."""
        return f"{self.vms}-{self.block_kib}-{self.pattern}"

    def section(self, phase: str) -> str:
        """The name of its job in fio's job file."""
        return f"{self.block_kib}k-{self.pattern}-{phase}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What one phase of a cell asks: of each VM in bytes a second (0: paced by pauses), and in all."""

    phase: str
    bytes_per_s: tuple[int, ...]
    asked_gib_per_s: float
    depth: int
    pause_us: int
    run_s: int


def dataset_files(io: Io) -> int:
    """Files of one VM's data set."""
    return io.directories * io.files_per_directory


def dataset_bytes(io: Io) -> int:
    """Bytes of one VM's data set."""
    return dataset_files(io) * io.file_mib * MIB


def accesses(io: Io) -> list[str]:
    """What is measured at every size: `4-read`, `4-write` ..., in the order of the profile."""
    return [f"{block}-{pattern}" for block in io.block_kib for pattern in io.patterns]


def in_order(io: Io, run_id: str, vms_per_node: int, repeat: int) -> list[str]:
    """The order in which the accesses of one size are measured: drawn by run, size and repeat alone."""
    drawn = accesses(io)
    Random(f"{run_id}/io/{vms_per_node}/{repeat}").shuffle(drawn)
    return drawn


def cell_of(vms: int, vms_per_node: int, access: str) -> IoCell:
    """The cell of so many VMs and one access."""
    block, _, pattern = access.partition("-")
    return IoCell(vms, vms_per_node, int(block), pattern)


def cells_of(io: Io, vms: int, vms_per_node: int) -> list[IoCell]:
    """The cells of one size, in the order of the profile."""
    return [cell_of(vms, vms_per_node, access) for access in accesses(io)]


def split(total: int, parts: int) -> tuple[int, ...]:
    """A whole number in whole parts that differ by one at most and add up to it."""
    each, rest = divmod(total, parts)
    return tuple(each + (i < rest) for i in range(parts))


def depth_of(io: Io, cell: IoCell) -> int:
    """Requests on their way at once: the profile's, or by Little's law rate times expected latency."""
    if io.depth is not None:
        return io.depth
    per_s = io.cap_gib_per_s * GIB / cell.vms / (cell.block_kib * 1024)
    return max(1, ceil(per_s * io.expected_latency_ms / 1000))


def load_of(io: Io, cell: IoCell) -> Asked:
    """The load: the whole cap."""
    total = round(io.cap_gib_per_s * GIB)
    return Asked("load", split(total, cell.vms), total / GIB, depth_of(io, cell), 0, io.run_s)


def baseline_of(io: Io, cell: IoCell) -> Asked:
    """The baseline: one request at a time, so paced that the whole fleet stays at a share of the cap."""
    per_s = io.cap_gib_per_s * io.baseline_share * GIB / (cell.block_kib * 1024)
    pause_us = max(1, round(cell.vms / per_s * 1e6))
    asked = io.cap_gib_per_s * io.baseline_share
    return Asked("baseline", (0,) * cell.vms, asked, 1, pause_us, io.baseline_s)


def layout_job(io: Io) -> bytes:
    """The job file that lays the data set out: every file written whole, with data that does not compress."""
    lines = [
        "[global]", "ioengine=psync", "direct=1", "thread=1", f"directory={DATA}",
        "filename_format=dir$jobnum/f$filenum", f"nrfiles={io.files_per_directory}",
        f"filesize={io.file_mib}M", "bs=1M", "rw=write", "refill_buffers=1", "end_fsync=1",
        "group_reporting=1", "[layout]", f"numjobs={io.directories}",
    ]  # fmt: skip
    return _file(lines)


def phases_of(io: Io, cells: Sequence[IoCell]) -> list[tuple[IoCell, Asked]]:
    """Every cell's baseline and load."""
    return [(cell, asked) for cell in cells for asked in (baseline_of(io, cell), load_of(io, cell))]


def measuring_jobs(io: Io, phases: Sequence[tuple[IoCell, Asked]], vm: str, place: int) -> bytes:
    """The job file of one VM, `place` among the size's VMs from 0: a section for each cell and phase."""
    lines = [
        "[global]", "ioengine=libaio", "direct=1", "thread=1", f"opendir={DATA}", "file_service_type=random",
        "time_based", "norandommap", "randrepeat=0", "refill_buffers=1", "percentile_list=50:95:99",
    ]  # fmt: skip
    for cell, asked in phases:
        lines += _section(io, cell, asked, (vm, place))
    return _file(lines)


def _section(io: Io, cell: IoCell, asked: Asked, who: tuple[str, int]) -> list[str]:
    vm, place = who
    name = cell.section(asked.phase)
    rate = asked.bytes_per_s[place]
    lines = [f"[{name}]", f"rw=rand{cell.pattern}", f"bs={cell.block_kib}k", f"iodepth={asked.depth}"]
    # fio 3.33 takes the same offsets in every guest and run unless it is given a seed
    lines += [f"randseed={zlib.crc32(f'{vm}/{cell.name}/{name}'.encode())}", f"runtime={asked.run_s}"]
    if rate:
        return [*lines, f"rate={rate}", f"ramp_time={io.ramp_s}"]
    staggered_us = asked.pause_us * place // cell.vms
    return [*lines, f"thinktime={asked.pause_us}", f"startdelay={staggered_us}us"]


def _file(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
