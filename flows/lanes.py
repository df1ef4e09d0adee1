"""PURE. Which steps of a run may be taken side by side: stages of a virtual cluster, each on its own copy.

A lane is the steps of one stage in order. Lanes of one leg run side by side, legs one after the other:
preparations | deploys, boot storms, IO, latency | report | clean.
"""

from itertools import groupby

from flows.steps import Step

MEASURED = ("deploy", "boot", "io", "latency")
LONGEST_FIRST = ("boot", "io", "deploy", "latency")
NODES = 100
SMALL_VMS = 2_000
"""Below so many VMs to measure, a process takes longer to start than it saves."""

Lane = list[Step]
Leg = list[Lane]


def legs_of(steps: list[Step]) -> list[Leg]:
    """The legs of a run; a stage that prepares or closes is a leg of its own."""
    stages = [list(of_stage) for _, of_stage in groupby(steps, key=lambda step: step.stage)]
    legs: list[Leg] = []
    for lane in stages:
        if legs and lane[0].stage in MEASURED and legs[-1][0][0].stage in MEASURED:
            legs[-1].append(lane)
        else:
            legs.append([lane])
    return legs


def processes_for(leg: Leg, processes: int) -> int:
    """How many processes a leg is worth: 1 is this one."""
    if len(leg) < 2 or sum(_vms(step) for lane in leg for step in lane) < SMALL_VMS:
        return 1
    return min(processes, len(leg))


def by_work(leg: Leg) -> Leg:
    """The lanes, the longest first: what is left to the end is short."""
    return sorted(leg, key=lambda lane: LONGEST_FIRST.index(lane[0].stage))


def _vms(step: Step) -> int:
    """VMs that a step measures, about: an io step names VMs per node."""
    return step.vms * (NODES if step.stage == "io" else 1)
