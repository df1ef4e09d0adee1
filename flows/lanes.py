"""PURE. Which steps of a run may be taken side by side: stages of a virtual cluster, each on its own copy.

A lane is the steps of one stage in order. Lanes of one leg run side by side, legs one after the other:
preflight | tuning | golden image | deploys, boot storms, IO, latency | report, clean.
"""

from itertools import groupby

from flows.steps import Step

MEASURED = ("deploy", "boot", "io", "latency")
CLOSING = ("report", "clean")
LONGEST_FIRST = ("boot", "io", "deploy", "latency", *CLOSING)
NODES = 100
SMALL_VMS = 2_000
"""Below so many VMs to measure, a process takes longer to start than it saves."""

Lane = list[Step]
Leg = list[Lane]


def legs_of(steps: list[Step]) -> list[Leg]:
    """The legs of a run: what prepares is a leg of its own, as is what reads and takes away in the end."""
    stages = [list(of_stage) for _, of_stage in groupby(steps, key=lambda step: step.stage)]
    legs: list[Leg] = []
    for lane in stages:
        if legs and _together(legs[-1][0][0].stage, lane[0].stage):
            legs[-1].append(lane)
        else:
            legs.append([lane])
    return legs


def _together(first: str, stage: str) -> bool:
    return any(first in group and stage in group for group in (MEASURED, CLOSING))


def processes_for(legs: list[Leg], processes: int) -> int:
    """How many processes beside this one a run is worth; 0: it is small, or nothing goes side by side."""
    lanes, vms = max(
        ((len(leg), sum(_vms(step) for lane in leg for step in lane)) for leg in legs if _measures(leg)),
        default=(0, 0),
    )
    return min(processes, lanes) if processes > 1 and lanes > 1 and vms >= SMALL_VMS else 0


def _measures(leg: Leg) -> bool:
    return leg[0][0].stage in MEASURED


def by_work(leg: Leg) -> Leg:
    """The lanes, the longest first: what is left to the end is short."""
    return sorted(leg, key=lambda lane: LONGEST_FIRST.index(lane[0].stage))


def _vms(step: Step) -> int:
    """VMs that a step brings, about: an io step names VMs per node, and a cell measures those of its size."""
    if step.stage == "io":
        return step.vms * NODES if step.cell.isdecimal() else 0
    return step.vms
