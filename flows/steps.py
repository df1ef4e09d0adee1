"""PURE. The procedure of a run: its steps in order, one for each thing that is done as a whole."""

from collections.abc import Iterator
from typing import NamedTuple

from tasks.io_plan import END, in_order
from tasks.profile import Batches, Profile, StageName

NAMES = {"golden-image": "golden image"}
"""How people call a stage where its own name reads badly."""


class Step(NamedTuple):
    """One task of the run: a stage, or one batch of it. `cell` is the batch's size, "0" for a whole stage.

    For latency it is the tool; for io the VMs per node, of a cell with block size and pattern, or `end`.
    """

    stage: StageName
    cell: str = "0"
    repeat: int = 1
    label: str = ""

    @property
    def vms(self) -> int:
        """VirtualMachines that the step measures."""
        first = self.cell.partition("-")[0]
        return int(first) if first.isdecimal() else 0


def steps_of(profile: Profile, run_id: str = "") -> list[Step]:
    """The steps of a profile: preflight, golden image, deploy 100, deploy 200 ... report, clean.

    The run id draws in which order the cells of an io size are measured.
    """
    return [step for stage in profile.stages for step in _steps(profile, stage, run_id)]


def _steps(profile: Profile, stage: StageName, run_id: str) -> Iterator[Step]:
    if stage == "deploy":
        yield from _batches(stage, profile.deploy)
    elif stage == "boot":
        yield from _batches(stage, profile.boot)
    elif stage == "io":
        yield from _io(profile, run_id)
    elif stage == "latency":
        yield from (Step(stage, tool, label=f"latency {tool}") for tool in profile.latency.tools)
    else:
        yield Step(stage, label=NAMES.get(stage, stage))


def _io(profile: Profile, run_id: str) -> Iterator[Step]:
    """Of each size its VMs, which the next one goes on with, then each cell; in the end the VMs go."""
    section = profile.io
    for repeat in range(1, section.repeats + 1):
        again = f" ({repeat} of {section.repeats})" if section.repeats > 1 else ""
        for per_node in section.vms_per_node:
            size = f"io {per_node} per node"
            yield Step("io", str(per_node), repeat, f"{size}{again}")
            for access in in_order(section, run_id, per_node, repeat):
                block, _, pattern = access.partition("-")
                yield Step("io", f"{per_node}-{access}", repeat, f"{size} {block} KiB {pattern}{again}")
    yield Step("io", END, label="io end")


def _batches(stage: StageName, section: Batches) -> Iterator[Step]:
    """Every size, then every size again: a drift of the cluster shows between repeats, not between sizes."""
    sizes = section.batches if section.order == "up" else section.batches[::-1]
    for repeat in range(1, section.repeats + 1):
        for size in sizes:
            again = f" ({repeat} of {section.repeats})" if section.repeats > 1 else ""
            yield Step(stage, str(size), repeat, f"{stage} {size}{again}")
