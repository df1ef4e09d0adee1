"""PURE. How evenly VMs are spread over nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt


@dataclass(frozen=True, slots=True)
class Balance:
    """VMs per node of one batch, over all schedulable nodes (those without a VM count as 0).

    `cv` is the population standard deviation over the mean; None when no VM was placed.
    `spread` is max minus min, `ideal_spread` what the best integer placement would have (0 or 1).
    """

    nodes: int
    vms: int
    min: int
    mean: float
    max: int
    cv: float | None
    spread: int
    ideal_spread: int


def balance(counts: Sequence[int]) -> Balance | None:
    """Balance of VM counts, one per node; None without nodes."""
    if not counts:
        return None
    nodes, vms = len(counts), sum(counts)
    mean = vms / nodes
    deviation = sqrt(sum((count - mean) ** 2 for count in counts) / nodes)
    least, most = min(counts), max(counts)
    cv = deviation / mean if vms else None
    return Balance(nodes, vms, least, mean, most, cv, most - least, int(vms % nodes > 0))
