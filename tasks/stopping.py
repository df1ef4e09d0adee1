"""VirtualMachines are halted: stops sent together, watched until VM says Stopped and instance is gone.

A VM says Stopped while its instance and pod still exist, so both must hold, of a VM whose run
strategy is Halted again.
"""

from dataclasses import dataclass, field

from infra.cluster.kinds import VM, VMI
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import NotFound
from infra.manifests import run_selector
from infra.world import World
from tasks.batch import Batch
from tasks.heartbeats import heartbeats
from tasks.observing import View, observing
from tasks.profile import Profile
from tasks.requests import DELETED, Order, drive, resent
from tasks.shards.handing_out import in_shards, is_shared
from tasks.shards.share import longest_gap_s

STAGE = "boot"


@dataclass(slots=True)
class Halts:
    """What still runs of each VM of a batch."""

    batch: Batch
    stopped: list[bool] = field(init=False)
    gone: list[bool] = field(init=False)
    stopped_not_yet: list[int] = field(init=False)
    gone_not_yet: list[int] = field(init=False)
    undone: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.stopped = [False] * len(self.batch)
        self.gone = [False] * len(self.batch)
        self.stopped_not_yet, self.gone_not_yet = [0] * len(self.batch), [0] * len(self.batch)
        self.undone = [0] * len(self.batch)

    def vm(self, event: str, obj: Object, ns: int) -> None:
        """A VirtualMachine changed."""
        i = self.batch.index.get(obj["metadata"]["name"])
        if i is None:
            return
        if event == "DELETED":
            self.batch.end(i, "lost", DELETED, "foreign_change")
            return
        status = obj.get("status") or {}
        is_stopped = status.get("printableStatus") == "Stopped" and obj["spec"].get("runStrategy") == "Halted"
        self._turn(i, is_stopped, (self.stopped, self.stopped_not_yet), ns)

    def _turn(self, i: int, holds: bool, fact: tuple[list[bool], list[int]], ns: int) -> None:
        """One of the two facts was seen to hold, or no more."""
        now, not_yet = fact
        if holds and not now[i]:
            not_yet[i] = self.batch.heard_ns
        elif now[i] and not holds:
            self.undone[i] = ns
        now[i] = holds
        self._check(i, ns)

    def instance(self, event: str, obj: Object, ns: int) -> None:
        """An instance changed; a new one may follow one that went."""
        i = self.batch.index.get(obj["metadata"]["name"])
        if i is not None:
            self._turn(i, event == "DELETED", (self.gone, self.gone_not_yet), ns)

    def instances_listed(self, names: set[str], ns: int) -> None:
        """These instances exist, the others do not."""
        for name, i in self.batch.index.items():
            if name not in names:
                self._turn(i, True, (self.gone, self.gone_not_yet), ns)

    def _check(self, i: int, ns: int) -> None:
        if self.stopped[i] and self.gone[i]:
            bounds = self.stopped_not_yet[i], self.gone_not_yet[i]
            # a fact that was undone may have held together with the other before anybody saw it
            self.batch.mark("halted", i, ns, min(bounds) if self.undone[i] else max(bounds))
            self.batch.succeed(i, self.batch.seen["halted"][i])


async def stop_vms(world: World, profile: Profile, batch: Batch) -> float:
    """Stop a batch and watch it; returns the longest gap of an observer, seconds."""
    if is_shared(world, batch):
        return longest_gap_s(await in_shards(world, profile, batch))
    halts = Halts(batch)
    order = Order(
        send=lambda i: world.cluster.subresource(Ref(VM, profile.namespace, batch.names[i]), "stop"),
        landed=lambda i: _halted(world, Ref(VM, profile.namespace, batch.names[i])),
        rate_per_s=None,
        limit_s=profile.stop_limit_s,
        missing=lambda: missing_vms(world, profile, batch),
    )
    labels, where = world.observed(STAGE), profile.namespace
    async with observing(
        world,
        View(Scope(VM, where, labels), halts.vm, steps=("halted",)),
        View(Scope(VMI, where, labels), halts.instance, halts.instances_listed, ("halted",)),
        batch=batch,
    ) as observers:
        async with heartbeats(world, observers, STAGE):
            await drive(world, batch, order, observers)
        return observers.longest_gap_s(batch.released_ns)


async def missing_vms(world: World, profile: Profile, batch: Batch) -> list[int]:
    """Which VMs of a batch do not exist (any more)."""
    scope = Scope(VM, profile.namespace, run_selector(world.run_id, STAGE))
    found = await resent(world, lambda: list_all(world.cluster, scope))
    there = {obj["metadata"]["name"] for obj in found.items}
    return [i for i, name in enumerate(batch.names) if name not in there]


async def _halted(world: World, ref: Ref) -> bool:
    """Halt what cannot be stopped because it has no instance (yet): start was accepted, no more."""
    try:
        found = await world.cluster.get(ref)
    except NotFound:
        return False
    if found["spec"].get("runStrategy") != "Halted":
        await world.cluster.patch(ref, {"spec": {"runStrategy": "Halted"}})
    return True


async def running_instances(world: World, profile: Profile) -> set[str]:
    """Names of the boot VMs that have an instance."""
    scope = Scope(VMI, profile.namespace, run_selector(world.run_id, STAGE))
    found = (await resent(world, lambda: list_all(world.cluster, scope))).items
    return {obj["metadata"]["name"] for obj in found}


async def halt(world: World, profile: Profile, names: list[str]) -> None:
    """Halt VMs that were started and have no instance; nothing to measure."""
    for name in names:
        await resent(world, lambda name=name: _halted(world, Ref(VM, profile.namespace, name)))  # type: ignore[misc]
