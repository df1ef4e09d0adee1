"""Boot storm: N halted VirtualMachines started at once, watched until SSH answers, then all stopped.

Steps: instance created, pod scheduled, instance Scheduled, Running (as reported), address known,
TCP 22 open, SSH banner (the study's end point), authenticated command succeeded (ours). Where
there are no guests the storm ends at Running and later steps are null. One commit per storm
holds its starts, placement and stops.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from infra.cluster.kinds import NODE, POD, VM, VMI
from infra.cluster.port import Object, Ref, Scope
from infra.errors import GuestError, NotFound
from infra.guests.port import Answer, Guests, Target
from infra.results.port import Attempt, Cell
from infra.world import World
from tasks.batch import Batch
from tasks.boot_vms import BootVm, chosen, ensure_boot_vms
from tasks.brakes import stop_at_brake
from tasks.braking import braking
from tasks.deploy import headline, remove_vms
from tasks.evidence import keep_evidence
from tasks.heartbeats import heartbeats, intend_heartbeats
from tasks.leftovers import boot_traces, count_leftovers
from tasks.losses import look_for_lost
from tasks.nodes import foreign_pods, is_ready, placement_rows, rooms
from tasks.observing import Observers, View, observing
from tasks.outcome import Circumstances, Outcome, outcome
from tasks.profile import Profile
from tasks.provisioning import explain
from tasks.quiesce import PROBE_KEY, first_answer_s, quiesce
from tasks.records import BOOT_STEPS
from tasks.requests import Order, drive
from tasks.shards.handing_out import in_shards, is_shared
from tasks.shards.share import longest_gap_s
from tasks.stopping import STAGE, halt, missing_vms, running_instances, stop_vms

STUDY_STEP = "ssh_banner"
SYNC_TIMEOUT_S = 60.0
SYNCS_AT_ONCE = 100
_OF_INSTANCE = ("vmi_created", "vmi_scheduled", "running", "ip_known")


@dataclass(slots=True)
class Boots:
    """The storm as observed: handlers write first moments into the batch."""

    batch: Batch
    guests: Guests
    end_step: str = field(init=False)
    nodes: list[str | None] = field(init=False)
    addresses: list[str] = field(init=False)
    lost: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    vanished: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        n = len(self.batch)
        self.end_step = self.guests.steps[-1] if self.guests.steps else "running"
        self.nodes, self.addresses = [None] * n, [""] * n
        for step in self.guests.steps:
            self.batch.lag_ns[step] = 0

    @property
    def steps(self) -> tuple[str, ...]:
        """Steps that this world can observe, up to its end point."""
        seen = {*BOOT_STEPS[: BOOT_STEPS.index("running") + 1], *self.guests.steps}
        if self.guests.steps:
            seen.update(() if self.guests.assigned else ("ip_known",))
        return tuple(step for step in BOOT_STEPS if step in seen)

    def instance(self, event: str, obj: Object, ns: int) -> None:
        """An instance changed; its state leads the VirtualMachine's by seconds under load."""
        batch = self.batch
        i = batch.index.get(obj["metadata"]["name"])
        if i is None or batch.state[i]:
            return
        if event == "DELETED":
            self.vanished.put_nowait(i)
            return
        if batch.seen["vmi_created"][i] is None:
            batch.mark("vmi_created", i, ns)
        status = obj.get("status")
        phase = status.get("phase") if status else None
        if status and phase in ("Scheduled", "Running"):
            batch.mark("vmi_scheduled", i, ns)
            if phase == "Running":
                batch.mark("running", i, ns)
            if self.guests.steps:
                self._address(i, status, ns)
            self._check(i)

    def _address(self, i: int, status: dict[str, Any], ns: int) -> None:
        address = self.guests.address_in(status)
        if address and address != self.addresses[i]:
            self.addresses[i] = address
            self.batch.mark("ip_known", i, ns)
            self.guests.aim(Target(self.batch.names[i], address))

    def pod(self, event: str, obj: Object, ns: int) -> None:
        """A launcher pod changed; its owner is the instance of the same name as the VM."""
        node = obj["spec"].get("nodeName")
        owners = obj["metadata"].get("ownerReferences")
        if not node or not owners or event == "DELETED":
            return
        i = self.batch.index.get(owners[0]["name"])
        if i is not None and not self.batch.state[i]:
            self.nodes[i] = node
            self.batch.mark("pod_scheduled", i, ns)

    def node(self, event: str, obj: Object, _ns: int) -> None:
        """A node changed; one that stops being Ready takes its VMs with it, even if it comes back."""
        name = obj["metadata"]["name"]
        if event != "DELETED" and is_ready(obj):
            self.ready.add(name)
        elif name in self.ready:
            self.lost.add(name)

    def answered(self, answer: Answer) -> None:
        """A guest answered a probe."""
        batch = self.batch
        i = batch.index.get(answer.vm)
        if i is None or batch.state[i] or batch.seen[answer.step][i] is not None:
            return
        batch.seen[answer.step][i] = answer.seen_ns
        batch.not_yet[answer.step][i] = answer.not_yet_ns
        self._check(i)

    def explain(self) -> None:
        """Give VMs that were not reached the reason that their node, or the prober, has."""
        batch = self.batch
        for i in batch.where("timeout"):
            if self.nodes[i] in self.lost:
                batch.code[i] = "node_lost"
            if batch.reason[i] is None and batch.seen["running"][i] is not None:
                batch.reason[i] = self.guests.reason(batch.names[i])

    def acknowledged(self, i: int, _ns: int) -> None:
        """The start was accepted, perhaps after the VM was seen to run."""
        self._check(i)

    def _check(self, i: int) -> None:
        seen = self.batch.seen
        reached = seen[self.end_step][i]
        if reached is not None and seen["acknowledged"][i] is not None:
            self.batch.succeed(i, reached)


async def boot_batch(world: World, profile: Profile, size: int, repeat: int = 1) -> dict[str, Any]:
    """Boot and stop one storm, commit it, and return its headline.

    Raises:
        StageError: the VMs or an observer failed; what was measured is kept as incomplete.
    """
    attempt = world.results.begin(Cell(STAGE, str(size), repeat))
    storm: list[Storm] = []
    done = False
    try:
        summary = await _measure(world, profile, attempt, storm)
        attempt.commit(summary, state=world.runtime.state())
        done = True
    finally:
        if not done:
            await _abandon(world, profile, attempt, storm)
    stop_at_brake(summary["braked"])
    return summary


@dataclass(frozen=True, slots=True)
class Storm:
    """The VMs of one storm, and what is seen of them."""

    vms: list[BootVm]
    boots: Boots

    def rows(self) -> list[dict[str, Any]]:
        """Rows of `vm_boots`."""
        return self.completed(self.boots.batch.rows(len(self.vms)))

    def completed(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of the batch with what only a storm knows of its VMs."""
        told = zip(rows, self.boots.nodes, self.vms, strict=True)
        return [{**row, "node": node, "boot_ordinal": vm.ordinal} for row, node, vm in told]


def _storm(world: World, vms: list[BootVm]) -> Storm:
    batch = Batch("boot", [vm.name for vm in vms])
    batch.uids = [vm.uid for vm in vms]
    for i, vm in enumerate(vms):
        if vm.broken:
            batch.end(i, "failed", vm.broken, "clone_failed")
    return Storm(vms, Boots(batch, world.guests))


async def _measure(world: World, profile: Profile, attempt: Attempt, storms: list[Storm]) -> dict[str, Any]:
    intend_heartbeats(world, attempt, profile.namespace)
    vms = await ensure_boot_vms(world, profile, attempt)
    if profile.boot.prime and any(vm.ordinal == 1 for vm in vms):
        await _prime(world, profile, [vm for vm in vms if vm.ordinal == 1])
        vms = await ensure_boot_vms(world, profile, attempt)
    first_s = await first_answer_s(world, profile)
    storm = _storm(world, chosen(vms, world.run_id, int(attempt.cell.cell), attempt.cell.repeat))
    storms.append(storm)
    booted = await _boot(world, profile, attempt, storm)
    stopped = await _stop(world, profile, attempt, (storm, first_s))
    for each in (booted, stopped):
        for table, rows in each.tables.items():
            attempt.add(table, rows)
    braked = {"braked": storm.boots.batch.braked}
    return {**headline(booted, stopped), **ordinals(storm.vms), PROBE_KEY: first_s, **braked}


def ordinals(vms: list[BootVm]) -> dict[str, int]:
    """How many of a storm's VMs boot for the first time, and how many again."""
    first = sum(vm.ordinal == 1 for vm in vms)
    return {"first_boots": first, "reboots": len(vms) - first}


async def _prime(world: World, profile: Profile, vms: list[BootVm]) -> None:
    """Boot every VM that never was, and stop it again; not measured."""
    storm = _storm(world, vms)
    await start_vms(world, profile, storm.boots)
    await _stop_started(world, profile, storm)
    stop_at_brake(storm.boots.batch.braked)


async def _boot(world: World, profile: Profile, attempt: Attempt, storm: Storm) -> Outcome:
    batch, section, boots = storm.boots.batch, profile.boot, storm.boots
    free, foreign = await rooms(world), await foreign_pods(world)
    batch.cell = (len(batch), attempt.number)
    gap_s = await start_vms(world, profile, boots)
    boots.explain()
    await explain(world, profile, STAGE, batch)
    await keep_evidence(world, profile, attempt, batch)
    circumstances = Circumstances(
        size=len(batch),
        repeat=attempt.cell.repeat,
        limit_s=section.limit_s,
        end_step=boots.end_step,
        study_step=STUDY_STEP if STUDY_STEP in boots.guests.steps else "",
        asked_rate_per_s=section.rate_per_s,
        gap_s=gap_s,
        clone_failures=sum(bool(vm.broken) for vm in storm.vms),
        steps=boots.steps,
        nodes_lost=tuple(sorted(boots.lost)),
        foreign_pods=len(foreign ^ await foreign_pods(world)),
    )
    attempt.add("placements", placement_rows(len(batch), boots.nodes, free, profile.vm))
    found = outcome(batch, circumstances, profile.limits)
    return replace(found, vms=storm.completed(found.vms))


async def start_vms(world: World, profile: Profile, boots: Boots) -> float:
    """Start a storm and watch it; returns the longest gap of an observer, seconds."""
    batch = boots.batch
    if is_shared(world, batch):
        return await _start_in_shards(world, profile, boots)
    where = profile.namespace
    order = Order(
        send=lambda i: world.cluster.subresource(Ref(VM, where, batch.names[i]), "start"),
        landed=lambda i: _started(world, Ref(VM, where, batch.names[i])),
        rate_per_s=profile.boot.rate_per_s,
        limit_s=profile.boot.limit_s,
        acknowledged=boots.acknowledged,
        missing=lambda: missing_vms(world, profile, batch),
    )
    labels = world.observed(STAGE)
    views = (
        View(Scope(VMI, where, labels), boots.instance, steps=_OF_INSTANCE),
        View(Scope(POD, where, labels), boots.pod, steps=("pod_scheduled",)),
        View(Scope(NODE), boots.node),
    )
    async with AsyncExitStack() as around:
        observers = await around.enter_async_context(observing(world, *views, batch=batch))
        await around.enter_async_context(heartbeats(world, observers, STAGE))
        order = replace(order, brake=await around.enter_async_context(braking(world, profile.brakes)))
        looking = asyncio.create_task(observers.guard(look_for_lost(world, profile, batch, boots.vanished)))
        around.callback(looking.cancel)
        await _probed(world, boots, observers, lambda: drive(world, batch, order, observers))
        return observers.longest_gap_s(batch.released_ns)


async def _start_in_shards(world: World, profile: Profile, boots: Boots) -> float:
    parts = await in_shards(world, profile, boots.batch)
    for share, found in parts:
        boots.lost |= found.more["lost"]
        for i, node in zip(share.turns, found.more["nodes"], strict=True):
            boots.nodes[i] = node
    return longest_gap_s(parts)


async def _probed(
    world: World, boots: Boots, observers: Observers, work: Callable[[], Awaitable[None]]
) -> None:
    """Do the work with the guests' prober armed, and listen to it."""
    if not world.guests.steps:
        await work()
        return
    world.guests.arm(boots.batch.names)
    listening = asyncio.create_task(observers.guard(_listen(world, boots)), name="guests' answers")
    try:
        await work()
    finally:
        world.guests.disarm()
        listening.cancel()
        await asyncio.wait({listening})


async def _listen(world: World, boots: Boots) -> None:
    answers: Any = world.guests.answers()
    async with aclosing(answers):
        async for batch in answers:
            for answer in batch:
                boots.answered(answer)


async def _started(world: World, ref: Ref) -> bool:
    """Whether a start was accepted: it edits the run strategy."""
    try:
        found = await world.cluster.get(ref)
    except NotFound:
        return False
    return bool(found["spec"].get("runStrategy") != "Halted")


async def _stop(world: World, profile: Profile, attempt: Attempt, before: tuple[Storm, float]) -> Outcome:
    storm, first_s = before
    batch, gap_s = await _stop_started(world, profile, storm, (len(storm.vms), attempt.number))
    await keep_evidence(world, profile, attempt, batch)
    traces = boot_traces()
    quiet = await quiesce(world, profile, lambda: count_leftovers(world, profile, traces), first_s)
    circumstances = Circumstances(
        size=len(storm.vms),
        repeat=attempt.cell.repeat,
        limit_s=profile.stop_limit_s,
        end_step="halted",
        gap_s=gap_s,
        quiet=quiet,
    )
    return outcome(batch, circumstances, profile.limits)


async def _stop_started(
    world: World, profile: Profile, storm: Storm, cell: tuple[int, int] | None = None
) -> tuple[Batch, float]:
    """Stop the VMs of a storm that have an instance; the others are only set to Halted."""
    await _sync_first_boots(world, storm)
    running = await running_instances(world, profile)
    names = storm.boots.batch.names
    await halt(world, profile, [name for name in names if name not in running])
    batch = Batch("stop", [name for name in names if name in running])
    batch.cell = cell
    return batch, await stop_vms(world, profile, batch)


async def _sync_first_boots(world: World, storm: Storm) -> None:
    """A guest cut off right after its first boot can lose its SSH host keys (cloud-init#5305)."""
    if "ssh_ready" not in world.guests.steps:
        return
    batch, turn = storm.boots.batch, asyncio.Semaphore(SYNCS_AT_ONCE)
    first = [batch.names[i] for i in batch.where("ok") if storm.vms[i].ordinal == 1]
    await asyncio.gather(*(_sync(world, name, turn) for name in first))


async def _sync(world: World, vm: str, turn: asyncio.Semaphore) -> None:
    async with turn:
        try:
            await world.guests.run(vm, "sync", SYNC_TIMEOUT_S)
        except GuestError:
            return


async def _abandon(world: World, profile: Profile, attempt: Attempt, storms: list[Storm]) -> None:
    """Store what is known of an interrupted storm, delete the boot VMs, commit it as incomplete."""
    for storm in storms:
        if storm.boots.batch.released_at is not None:
            storm.boots.batch.close("lost", "interrupted")
            attempt.add("vm_boots", storm.rows())
    attempt.flush()
    await remove_vms(world, profile, STAGE)
    attempt.commit({"interrupted": True}, complete=False, state=world.runtime.state())
