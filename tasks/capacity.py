"""PURE. Whether the largest batch fits on the schedulable nodes with one of them to spare."""

from collections.abc import Sequence
from typing import NamedTuple

from tasks.profile import Profile

GIB = 1024**3
NAMES = {"cpu": "CPUs", "memory": "GiB of memory", "pods": "pods", "devices.kubevirt.io/kvm": "KVM devices"}


class Fit(NamedTuple):
    """Whether VMs fit; `found` and `needed` say it for people."""

    fits: bool
    found: str
    needed: str


def largest_batch(profile: Profile) -> int:
    """VMs of the largest batch that the profile's stages deploy or boot; 0 when they do neither."""
    sections = {"deploy": profile.deploy, "boot": profile.boot}
    return max((max(sections[stage].batches) for stage in profile.stages if stage in sections), default=0)


def fit(vms: int, need: dict[str, float], free: Sequence[dict[str, float]]) -> Fit:
    """Place VMs that each need `need` on nodes with `free` room, one node kept empty.

    The resource that lets the fewest VMs in is the one that is named, with what it would need.
    """
    if not free:
        return Fit(False, "none is schedulable", f"{vms:,} VMs need nodes")
    fits = {what: _places(need, [room for room in free if what in room], [what]) for what in need}
    fits = {what: places for what, places in fits.items() if any(what in room for room in free)}
    together = _places(need, free, list(fits))
    limiting = min(fits, key=lambda what: fits[what])
    found = (
        f"{_amount(limiting, sum(room.get(limiting, 0.0) for room in free))} are free on schedulable nodes"
    )
    needed = f"{vms:,} VMs need {_amount(limiting, vms * need[limiting])}"
    if len(free) > 1:
        found = f"{found} ({together:,} VMs fit with one node to spare)"
    return Fit(together >= vms, found, needed)


def _places(need: dict[str, float], free: Sequence[dict[str, float]], what: list[str]) -> int:
    """VMs that fit by these resources; the roomiest of several nodes is kept empty."""
    places = [min(int(max(0.0, room.get(each, 0.0)) / need[each] + 1e-9) for each in what) for room in free]
    spare = max(places) if len(places) > 1 else 0
    return sum(places) - spare


def _amount(what: str, amount: float) -> str:
    if what == "memory":
        amount /= GIB
    whole = int(amount) if amount == int(amount) else round(amount, 1)
    return f"{whole:,} {NAMES[what]}"
