"""VirtualMachines come into being: all creates released together, watched until each can be started.

A VM is deployed at the first moment at which all three hold: its DataVolume has Succeeded (it may
vanish afterwards), its claim is Bound, and the VM says Stopped. A VM says Stopped before its
DataVolume exists as well, so Stopped alone means nothing. The study's end point is earlier: the
VM acknowledged and its claim Bound.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from infra import manifests
from infra.cluster.kinds import DATA_VOLUME, PVC, VM
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import NotFound
from infra.manifests import CloudInit, Machine, Source, disk_name, run_selector
from infra.world import World
from tasks.batch import Batch
from tasks.braking import braking
from tasks.golden_image import CLONE_TYPE, EXPECTED_CLONE, root_disk, sources_of
from tasks.heartbeats import heartbeats
from tasks.observing import View, observing
from tasks.ownership import mark_of
from tasks.profile import Profile
from tasks.requests import DELETED, Order, drive, is_marked, resent
from tasks.shards.handing_out import in_shards, is_shared
from tasks.shards.share import longest_gap_s, number_of

ERROR_PATIENCE_S = 60.0
"""How long a VM may say DataVolumeError: healthy clones say it for 0.1 s, broken ones for ever."""
WHY = {"Failure": "True", "Synchronized": "False", "PodScheduled": "False"}
"""Conditions, and their status, in which a VirtualMachine that does not run says what keeps it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which VMs are made, for which stage and batch, how fast, and how long is waited."""

    stage: str
    size: int
    names: list[str]
    rate_per_s: float | None
    limit_s: float


@dataclass(slots=True)
class Clones:
    """What became of the disks of a batch, seen through VM, DataVolume and claim.

    The lists say what holds now, by the index of the VM; handlers are called for every event of
    the namespace's run, so they are plain look-ups.
    """

    batch: Batch
    disks: dict[str, int] = field(init=False)
    succeeded: list[bool] = field(init=False)
    bound: list[bool] = field(init=False)
    stopped: list[bool] = field(init=False)
    disk_not_yet: list[int] = field(init=False)
    stopped_not_yet: list[int] = field(init=False)
    left: list[int] = field(init=False)
    bound_ns: list[int] = field(init=False)
    looks: Callable[[], bool] = field(default=lambda: True)
    in_error: dict[int, int] = field(default_factory=dict)
    failures: int = 0
    copied: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        n = len(self.batch)
        self.disks = {disk_name(name): i for i, name in enumerate(self.batch.names)}
        self.succeeded, self.bound, self.stopped = [False] * n, [False] * n, [False] * n
        self.disk_not_yet, self.stopped_not_yet, self.left = [0] * n, [0] * n, [0] * n
        self.bound_ns = [0] * n

    def vm(self, event: str, obj: Object, ns: int) -> None:
        """A VirtualMachine changed."""
        i = self.batch.index.get(obj["metadata"]["name"])
        if i is None or self.batch.state[i]:
            return
        if event == "DELETED":
            self.batch.end(i, "lost", DELETED, "foreign_change")
            return
        if obj["metadata"].get("generation", 1) > 1:
            self.batch.journal.foreign.add(self.batch.names[i])
        status = obj.get("status")
        printable = status.get("printableStatus", "") if status else ""
        if printable != "DataVolumeError":
            self.in_error.pop(i, None)
        elif i not in self.in_error:
            self.in_error[i] = ns
            asyncio.get_running_loop().call_later(ERROR_PATIENCE_S, self._still_in_error, i, ns)
        self._is_stopped(i, printable == "Stopped", ns)
        self._check(i, ns)

    def _is_stopped(self, i: int, is_stopped: bool, ns: int) -> None:
        if is_stopped != self.stopped[i]:
            self.stopped[i] = is_stopped
            if is_stopped:
                self.stopped_not_yet[i] = self.batch.heard_ns
            else:
                self.left[i] = ns

    def _still_in_error(self, i: int, since_ns: int) -> None:
        if self.in_error.get(i) == since_ns:
            self._failed(i, f"DataVolumeError for {ERROR_PATIENCE_S:g} s")

    def _failed(self, i: int, reason: str) -> None:
        if not self.batch.state[i]:
            self.failures += 1
            self.batch.end(i, "failed", reason, "clone_failed")

    def data_volume(self, event: str, obj: Object, ns: int) -> None:
        """A DataVolume changed; one that vanishes after success has still succeeded."""
        i = self.disks.get(obj["metadata"]["name"])
        if i is None or event == "DELETED":
            return
        status = obj.get("status")
        phase = status.get("phase") if status else None
        if phase == "Succeeded":
            if not self.succeeded[i]:
                self.succeeded[i] = True
                self._disk_is(i)
                self.batch.mark("datavolume_succeeded", i, ns)
                self._check(i, ns)
        elif phase == "Failed":
            self._failed(i, "DataVolume Failed")

    def claim(self, event: str, obj: Object, ns: int) -> None:
        """A claim changed."""
        meta = obj["metadata"]
        i = self.disks.get(meta["name"])
        if i is None or self.bound[i] or event == "DELETED":
            return
        annotations = meta.get("annotations")
        if annotations and annotations.get(CLONE_TYPE, EXPECTED_CLONE) != EXPECTED_CLONE:
            self.copied.add(i)
        status = obj.get("status")
        if status and status.get("phase") == "Bound":
            self.bound[i] = True
            self.bound_ns[i] = self.batch.heard_ns
            self._disk_is(i)
            self.acknowledged(i, ns)
            self._check(i, ns)

    def acknowledged(self, i: int, ns: int) -> None:
        """The study's end point: created and bound, whichever came last."""
        acknowledged = self.batch.seen["acknowledged"][i]
        if self.bound[i] and acknowledged is not None:
            self.batch.mark("pvc_bound", i, ns, max(self.bound_ns[i], acknowledged))
        self._check(i, ns)

    def _disk_is(self, i: int) -> None:
        """Part of the disk's state was seen for the first time: it cannot have been so before this."""
        self.disk_not_yet[i] = max(self.disk_not_yet[i], self.batch.heard_ns)

    def narrow(self) -> None:
        """Where a VM surely said something else when its disk was ready, it waited for Stopped alone.

        Called when lags are known: what was heard is no older than what was told before it, less the lag.
        """
        lag_ns, not_yet = self.batch.lag_ns["deployed"], self.batch.not_yet["deployed"]
        for i, ns in enumerate(not_yet):
            if ns is not None and lag_ns is not None and self.left[i] <= ns - lag_ns:
                not_yet[i] = max(ns, self.stopped_not_yet[i])

    def caught_up(self, ns: int) -> None:
        """What a watch missed has been told: what was not decided meanwhile is decided now."""
        for i in self.batch.where(""):
            if not self.stopped[i]:
                # it may have said Stopped, and no more, while nobody looked
                self.left[i] = ns
            self._check(i, ns)

    def _check(self, i: int, ns: int) -> None:
        if self.stopped[i] and self.succeeded[i] and self.bound[i] and self.looks():
            self.batch.mark("deployed", i, ns, self.disk_not_yet[i])
            if self.batch.seen["acknowledged"][i] is not None:
                self.batch.succeed(i, self.batch.seen["deployed"][i])

    def relisted(self, names: set[str], _ns: int) -> None:
        """A list shows which acknowledged VMs are gone."""
        acknowledged = self.batch.seen["acknowledged"]
        for name, i in self.batch.index.items():
            if acknowledged[i] is not None and name not in names:
                self.batch.end(i, "lost", DELETED, "foreign_change")


def machine_of(profile: Profile, seed: CloudInit | None = None) -> Machine:
    """The shape of every VM, and what its guest is told."""
    shape = profile.vm
    return Machine(
        cores=shape.cores,
        memory_gib=shape.memory_gib,
        disk=root_disk(profile),
        network=shape.network,
        cloud_init=seed,
        priority_class=shape.priority_class,
        instance_type=shape.instance_type,
        preference=shape.preference,
        manifest=shape.manifest,
    )


def source_of(profile: Profile, i: int) -> Source:
    """The source that VM i is cloned from."""
    sources = sources_of(profile)
    return sources[i % len(sources)]


async def provision(world: World, profile: Profile, plan: Plan, clones: Clones) -> float:
    """Create the VMs of a plan and watch them; returns the longest gap of an observer, seconds.

    The batch of `clones` holds every moment; it is complete (no VM open) unless this is cancelled.
    """
    batch = clones.batch
    if is_shared(world, batch):
        return await _in_shards(world, profile, plan, clones)
    order = Order(
        send=lambda i: _create(world, profile, plan, (batch, i)),
        landed=lambda i: _created(world, profile, batch, i),
        rate_per_s=plan.rate_per_s,
        limit_s=plan.limit_s,
        acknowledged=clones.acknowledged,
    )
    labels = world.observed(plan.stage)
    where = profile.namespace
    vms = View(Scope(VM, where, labels), clones.vm, clones.relisted, ("deployed",), clones.caught_up)
    async with observing(
        world,
        vms,
        View(
            Scope(DATA_VOLUME, where, labels), clones.data_volume, steps=("datavolume_succeeded", "deployed")
        ),
        View(Scope(PVC, where, labels), clones.claim, steps=("pvc_bound", "deployed")),
        batch=batch,
    ) as observers:
        clones.looks = observers.looks_at(vms)
        async with heartbeats(world, observers, plan.stage), braking(world, profile.brakes) as brake:
            await drive(world, batch, replace(order, brake=brake), observers)
        gap_s = observers.longest_gap_s(batch.released_ns)
    clones.narrow()
    return gap_s


async def _in_shards(world: World, profile: Profile, plan: Plan, clones: Clones) -> float:
    asked = {name: getattr(plan, name) for name in ("stage", "size", "rate_per_s", "limit_s")}
    parts = await in_shards(world, profile, clones.batch, {"plan": asked})
    for share, found in parts:
        clones.failures += found.more["failures"]
        clones.copied |= {share.turns[j] for j in found.more["copied"]}
    if clones.batch.shards_lost:
        await _find(world, profile, plan, clones.batch)
    return longest_gap_s(parts)


async def _find(world: World, profile: Profile, plan: Plan, batch: Batch) -> None:
    """What a shard made whose process is gone has to be deleted as well."""
    scope = Scope(VM, profile.namespace, run_selector(world.run_id, plan.stage))
    for obj in (await resent(world, lambda: list_all(world.cluster, scope))).items:
        i = batch.index.get(obj["metadata"]["name"])
        if i is not None and is_marked(world, obj):
            batch.uids[i] = obj["metadata"]["uid"]


async def _create(world: World, profile: Profile, plan: Plan, vm: tuple[Batch, int]) -> None:
    batch, i = vm
    number = number_of(batch.names[i])
    mark = replace(mark_of(world, plan.stage), batch=plan.size, index=number)
    source = source_of(profile, number)
    machine = machine_of(profile, world.guests.cloud_init(batch.names[i]))
    manifest = manifests.virtual_machine(batch.names[i], profile.namespace, mark, machine, source)
    asked = world.clock.wall()
    created = await world.cluster.create(manifest)
    batch.uids[i] = created["metadata"]["uid"]
    batch.journal.dated(created["metadata"].get("creationTimestamp", ""), asked, world.clock.wall())


async def _created(world: World, profile: Profile, batch: Batch, i: int) -> bool:
    try:
        found = await world.cluster.get(Ref(VM, profile.namespace, batch.names[i]))
    except NotFound:
        return False
    if not is_marked(world, found):
        return False
    batch.uids[i] = found["metadata"]["uid"]
    return True


async def explain(world: World, profile: Profile, stage: str, batch: Batch) -> None:
    """Give VMs that are not ok the reason that the cluster states: status and Failure condition."""
    if not any(batch.reason[i] is None for i in batch.where("timeout", "failed")):
        return
    scope = Scope(VM, profile.namespace, run_selector(world.run_id, stage))
    for obj in (await resent(world, lambda: list_all(world.cluster, scope))).items:
        i = batch.index.get(obj["metadata"]["name"])
        if i is not None and batch.state[i] in ("timeout", "failed") and batch.reason[i] is None:
            batch.reason[i] = _stated(obj)


def _stated(vm: Object) -> str:
    status: dict[str, Any] = vm.get("status") or {}
    printable = status.get("printableStatus") or "without a status"
    # what an instance no longer has stays on its VM
    stated = [] if printable == "Running" else status.get("conditions") or []
    conditions = (each for each in stated if WHY.get(each["type"]) == each["status"])
    # one cause may be in two conditions
    words = dict.fromkeys(each.get("message") or each.get("reason") or "" for each in conditions)
    return ": ".join((f"VirtualMachine {printable}", *filter(None, words)))
