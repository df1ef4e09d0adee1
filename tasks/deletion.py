"""VirtualMachines go: all deletes released together, watched until disk and volume are gone too.

A VM is gone when it, its DataVolume and its claim are; its volume is gone when the
PersistentVolume is. A storage driver may still be removing the image then (ceph-csi moves it to
its trash first), which no object shows.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from infra.cluster.kinds import DATA_VOLUME, PV, PVC, VM
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import NotFound
from infra.manifests import disk_name
from infra.world import World
from tasks.batch import Batch
from tasks.heartbeats import heartbeats
from tasks.observing import View, observing
from tasks.profile import Profile
from tasks.requests import Order, drive, resent
from tasks.shards.handing_out import in_shards, is_shared
from tasks.shards.share import longest_gap_s


class Volume(NamedTuple):
    """A PersistentVolume of ours: its UID is what allows to speak of it as ours."""

    name: str
    uid: str
    claim: str


async def volumes_of(world: World, profile: Profile, vms: list[str]) -> list[Volume]:
    """The volumes that are bound to the disks of these VMs."""
    claims = {disk_name(vm) for vm in vms}
    items = (await resent(world, lambda: list_all(world.cluster, Scope(PV)))).items
    bound = [(obj["metadata"], obj["spec"].get("claimRef") or {}) for obj in items]
    return [
        Volume(meta["name"], meta["uid"], ref["name"])
        for meta, ref in bound
        if ref.get("namespace") == profile.namespace and ref.get("name") in claims
    ]


@dataclass(slots=True)
class Removal:
    """What is still there of each VM of a batch; a list says what is not there, a watch what went."""

    batch: Batch
    volumes: dict[str, int]
    disks: dict[str, int] = field(init=False)
    left: list[set[str]] = field(init=False)
    not_yet: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.disks = {disk_name(name): i for i, name in enumerate(self.batch.names)}
        self.left = [{"vm", "disk", "claim"} for _ in self.batch.names]
        self.not_yet = [0] * len(self.batch)
        for i in self.volumes.values():
            self.left[i].add("volume")

    def vm(self, event: str, obj: Object, ns: int) -> None:
        """A VirtualMachine changed."""
        if event == "DELETED":
            self._gone(self.batch.index.get(obj["metadata"]["name"]), "vm", ns)

    def disk(self, event: str, obj: Object, ns: int) -> None:
        """A DataVolume changed."""
        if event == "DELETED":
            self._gone(self.disks.get(obj["metadata"]["name"]), "disk", ns)

    def claim(self, event: str, obj: Object, ns: int) -> None:
        """A claim changed."""
        if event == "DELETED":
            self._gone(self.disks.get(obj["metadata"]["name"]), "claim", ns)

    def volume(self, event: str, obj: Object, ns: int) -> None:
        """A PersistentVolume changed."""
        if event == "DELETED":
            self._gone(self.volumes.get(obj["metadata"]["name"]), "volume", ns)

    def vms_listed(self, names: set[str], ns: int) -> None:
        """These VMs exist, the others do not."""
        self._absent(self.batch.index, names, "vm", ns)

    def disks_listed(self, names: set[str], ns: int) -> None:
        """These DataVolumes exist."""
        self._absent(self.disks, names, "disk", ns)

    def claims_listed(self, names: set[str], ns: int) -> None:
        """These claims exist."""
        self._absent(self.disks, names, "claim", ns)

    def volumes_listed(self, names: set[str], ns: int) -> None:
        """These volumes exist."""
        self._absent(self.volumes, names, "volume", ns)

    def _absent(self, index: dict[str, int], names: set[str], what: str, ns: int) -> None:
        for name, i in index.items():
            if name not in names:
                self._gone(i, what, ns)

    def _gone(self, i: int | None, what: str, ns: int) -> None:
        if i is None or what not in self.left[i]:
            return
        left = self.left[i]
        left.discard(what)
        if what == "volume":
            self.batch.mark("volume_gone", i, ns)
        else:
            self.not_yet[i] = max(self.not_yet[i], self.batch.heard_ns)
        if not left & {"vm", "disk", "claim"}:
            self.batch.mark("gone", i, ns, self.not_yet[i])
        if not left:
            # of a VM whose clone failed there never was a volume: then none is left with the rest
            self.batch.mark("volume_gone", i, ns, self.not_yet[i])
            self.batch.succeed(i, ns)


def doomed_batch(vms: dict[str, str]) -> Batch:
    """A batch of the VMs (name to UID) that are to be deleted."""
    batch = Batch("delete", list(vms))
    batch.uids = list(vms.values())
    return batch


async def delete_vms(world: World, profile: Profile, batch: Batch, volumes: list[Volume]) -> float:
    """Delete a batch and watch it go; returns the longest gap of an observer, seconds."""
    if is_shared(world, batch):
        more = {"volumes": [tuple(volume) for volume in volumes]}
        return longest_gap_s(await in_shards(world, profile, batch, more))
    disks = {disk_name(name): i for i, name in enumerate(batch.names)}
    removal = Removal(batch, {volume.name: disks[volume.claim] for volume in volumes})
    order = Order(
        send=lambda i: _delete(world, profile, batch, i),
        landed=lambda i: _deleted(world, profile, batch, i),
        rate_per_s=None,
        limit_s=profile.delete_limit_s,
    )
    labels, where = world.observed(), profile.namespace
    async with observing(
        world,
        View(Scope(VM, where, labels), removal.vm, removal.vms_listed, ("gone",)),
        View(Scope(DATA_VOLUME, where, labels), removal.disk, removal.disks_listed, ("gone",)),
        View(Scope(PVC, where, labels), removal.claim, removal.claims_listed, ("gone",)),
        View(Scope(PV), removal.volume, removal.volumes_listed, ("volume_gone",)),
        batch=batch,
    ) as observers:
        async with heartbeats(world, observers, "deploy"):
            await drive(world, batch, order, observers)
        return observers.longest_gap_s(batch.released_ns)


async def _delete(world: World, profile: Profile, batch: Batch, i: int) -> None:
    try:
        await world.cluster.delete(Ref(VM, profile.namespace, batch.names[i]), uid=batch.uids[i])
    except NotFound:
        return


async def _deleted(world: World, profile: Profile, batch: Batch, i: int) -> bool:
    try:
        found = await world.cluster.get(Ref(VM, profile.namespace, batch.names[i]))
    except NotFound:
        return True
    return found["metadata"]["uid"] != batch.uids[i] or "deletionTimestamp" in found["metadata"]
