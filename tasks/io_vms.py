"""The VirtualMachines of the io stage: an equal number on every node, each pinned to its own, all up.

VM i belongs to node i mod nodes, so a size is the first VMs of the next one: they stay up and keep
their data sets until the last size is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from infra import manifests
from infra.cluster.kinds import DATA_VOLUME, NODE, PV, VM, VMI, Kind
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import Conflict, GuestError, InvalidRun, NotFound, StageError
from infra.manifests import disk_name, run_selector
from infra.results.port import Attempt
from infra.world import World
from tasks.batch import NS
from tasks.deletion import volumes_of
from tasks.golden_image import ensure_golden_image
from tasks.nodes import is_schedulable, need_of, rooms
from tasks.observing import View, observing
from tasks.ownership import intend, know, mark_of
from tasks.profile import Profile
from tasks.provisioning import machine_of, source_of
from tasks.requests import create_ours, is_marked, resent

STAGE = "io"
HOSTNAME = "kubernetes.io/hostname"
AT_ONCE = 200
COMMAND_LIMIT_S = 60.0
PAUSE_S = 5.0


@dataclass(slots=True)
class Fleet:
    """The VMs of one size; `broken` says of a VM why it cannot be measured.

    `nodes` are names with their host-name labels.
    """

    nodes: list[tuple[str, str]]
    names: list[str]
    placed: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def node_of(self, i: int) -> str:
        """The node that VM i belongs to."""
        return self.nodes[i % len(self.nodes)][0]

    def hosts(self) -> dict[str, str]:
        """The host-name label that each VM is pinned to."""
        return {name: self.nodes[i % len(self.nodes)][1] for i, name in enumerate(self.names)}

    @property
    def usable(self) -> list[str]:
        """VMs that can be measured."""
        return [name for name in self.names if name not in self.broken]

    def misplaced(self) -> list[str]:
        """VMs that are not where they belong."""
        wanted = {name: self.node_of(i) for i, name in enumerate(self.names)}
        return [name for name in self.usable if self.placed.get(name) != wanted[name]]


def vm_name(run_id: str, i: int) -> str:
    """Name of VM i."""
    return f"{run_id}-io-{i:04d}"


def fleet_of(world: World, nodes: list[tuple[str, str]], per_node: int) -> Fleet:
    """So many VMs on each of these nodes."""
    return Fleet(nodes, [vm_name(world.run_id, i) for i in range(per_node * len(nodes))])


async def ensure_fleet(world: World, profile: Profile, attempt: Attempt, fleet: Fleet) -> bool:
    """Make sure that the VMs run in their places and answer; True when some had to be made.

    Those that do not are said to be broken; known broken ones are tried again only when VMs are made.

    Raises:
        StageError: there is no room for them, or of those that are tried not one is up.
        InvalidRun: this world's guests cannot be reached.
    """
    if not world.guests.steps:
        raise InvalidRun("stage io: the guests of this world cannot be reached: leave io out of --stages")
    there = await _existing(world, profile)
    missing = [name for name in fleet.names if name not in there]
    if missing:
        fleet.broken.clear()
        await _check_room(world, profile, fleet, missing)
        hosts = fleet.hosts()
        await _create(world, profile, attempt, {name: hosts[name] for name in missing})
        await _cloned(world, profile, fleet)
    tried = fleet.usable
    await _start(world, profile, fleet)
    await look_at_placement(world, profile, fleet)
    if tried and not fleet.usable:
        first = fleet.names[0]
        raise StageError(f"VirtualMachine {profile.namespace}/{first} and all others: {fleet.broken[first]}")
    return bool(missing)


async def chosen_nodes(world: World, profile: Profile) -> list[tuple[str, str]]:
    """Name and host-name label of the nodes that take part, by name.

    Raises:
        StageError: there are fewer than the profile asks for.
    """
    items = (await resent(world, lambda: list_all(world.cluster, Scope(NODE)))).items
    metas = sorted((obj["metadata"] for obj in items if is_schedulable(obj)), key=lambda meta: meta["name"])
    wanted = profile.io.nodes or len(metas)
    if len(metas) < wanted or not metas:
        raise StageError(f"stage io: io.nodes is {wanted}, but {len(metas)} nodes are schedulable: lower it")
    return [(meta["name"], (meta.get("labels") or {}).get(HOSTNAME, meta["name"])) for meta in metas[:wanted]]


async def _check_room(world: World, profile: Profile, fleet: Fleet, missing: list[str]) -> None:
    """Every node has room for the VMs that are to come onto it."""
    need, place = need_of(profile.vm), {name: i for i, name in enumerate(fleet.names)}
    fits = {room.node: room.fits(need) for room in await rooms(world)}
    more: dict[str, int] = {}
    for name in missing:
        node = fleet.node_of(place[name])
        more[node] = more.get(node, 0) + 1
    full = [node for node, count in more.items() if fits.get(node, 0) < count]
    if full:
        node = full[0]
        raise StageError(
            f"stage io: node {node} has room for {fits.get(node, 0)} VMs, {more[node]} more are needed "
            f"({len(full)} such nodes): lower io.vms_per_node or free the nodes"
        )


async def _existing(world: World, profile: Profile) -> dict[str, Object]:
    scope = Scope(VM, profile.namespace, run_selector(world.run_id, STAGE))
    found = (await resent(world, lambda: list_all(world.cluster, scope))).items
    return {obj["metadata"]["name"]: obj for obj in found if is_marked(world, obj)}


async def _create(world: World, profile: Profile, attempt: Attempt, pins: dict[str, str]) -> None:
    """Create the VMs (name to host name), intents first."""
    await ensure_golden_image(world, profile, attempt)
    intend(world, attempt, [Ref(VM, profile.namespace, name) for name in pins])
    made = await at_once(pins, lambda name: create_ours(world, pinned_vm(world, profile, name, pins[name])))
    known = [(Ref(VM, profile.namespace, obj["metadata"]["name"]), obj["metadata"]["uid"]) for obj in made]
    know(attempt, known)


def pinned_vm(world: World, profile: Profile, name: str, host: str) -> Object:
    """The manifest of a VM that runs on one node only."""
    number = int(name.rpartition("-")[2])
    mark = replace(mark_of(world, STAGE), batch=0, index=number)
    machine = machine_of(profile, world.guests.cloud_init(name))
    manifest = manifests.virtual_machine(name, profile.namespace, mark, machine, source_of(profile, number))
    spec = manifest["spec"]["template"]["spec"]
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), HOSTNAME: host}
    return manifest


async def at_once(names: Iterable[str], call: Callable[[str], Awaitable[Object]]) -> list[Object]:
    """Call for every name, some hundred at a time; answers in their order."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Object:
        async with turn:
            return await call(name)

    return list(await asyncio.gather(*(one(name) for name in names)))


async def _cloned(world: World, profile: Profile, fleet: Fleet) -> None:
    """Wait until every disk is cloned or has failed."""
    disks = {disk_name(name): name for name in fleet.names}
    phases = await _phases(world, profile, (DATA_VOLUME, set(disks)), ("Succeeded", "Failed"))
    for disk, name in disks.items():
        if phases.get(disk) != "Succeeded":
            fleet.broken[name] = (
                f"its disk was not cloned: DataVolume {phases.get(disk, 'without a decision')}"
            )


async def _phases(
    world: World, profile: Profile, of: tuple[Kind, set[str]], wanted: tuple[str, ...]
) -> dict[str, str]:
    """Watch objects until each has reached one of the phases, or the limit has passed: name to phase."""
    kind, names = of
    reached: dict[str, str] = {}
    if not names:
        return reached
    all_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def changed(_event: str, obj: Object, _ns: int) -> None:
        name, status = obj["metadata"]["name"], obj.get("status")
        phase = status.get("phase") if status else None
        if phase in wanted and name in names:
            reached[name] = phase
            if len(reached) == len(names) and not all_done.done():
                all_done.set_result(None)

    scope = Scope(kind, profile.namespace, run_selector(world.run_id, STAGE))
    async with observing(world, View(scope, changed)) as observers:
        waits = {all_done, observers.broken}
        await asyncio.wait(waits, timeout=profile.io.limit_s, return_when=asyncio.FIRST_COMPLETED)
        if observers.broken.done():
            await observers.broken
    return reached


async def _start(world: World, profile: Profile, fleet: Fleet) -> None:
    """Start the VMs that do not run, and wait until each answers a command."""
    phases = {obj["metadata"]["name"]: obj.get("status") or {} for obj in await _instances(world, profile)}
    await at_once(
        [name for name in fleet.usable if name not in phases], lambda name: _ask(world, profile, name)
    )
    deadline_ns = world.clock.now_ns() + round(profile.io.limit_s * NS)
    wanted = {name for name in fleet.usable if phases.get(name, {}).get("phase") != "Running"}
    up = await _phases(world, profile, (VMI, wanted), ("Running",))
    fleet.broken |= dict.fromkeys(sorted(wanted - up.keys()), "its instance did not run within the limit")
    answers = await asyncio.gather(*(_answers(world, name, deadline_ns) for name in fleet.usable))
    fleet.broken |= {name: why for name, why in zip(fleet.usable, answers, strict=True) if why}


async def _ask(world: World, profile: Profile, name: str) -> Object:
    """Start one; a VM that was started before answers with a conflict."""
    ref = Ref(VM, profile.namespace, name)
    try:
        await resent(world, lambda: world.cluster.subresource(ref, "start"))
    except (Conflict, NotFound):
        return {}
    return {}


async def _answers(world: World, vm: str, deadline_ns: int) -> str:
    """Wait for the first command that succeeds; "" or why none did."""
    while True:
        try:
            await world.guests.run(vm, "true", COMMAND_LIMIT_S)
        except GuestError as error:
            if world.clock.now_ns() > deadline_ns:
                return f"it did not answer within the limit: {error}"
        else:
            return ""
        await world.clock.sleep(PAUSE_S)


async def _instances(world: World, profile: Profile) -> list[Object]:
    scope = Scope(VMI, profile.namespace, run_selector(world.run_id, STAGE))
    return (await resent(world, lambda: list_all(world.cluster, scope))).items


async def look_at_placement(world: World, profile: Profile, fleet: Fleet) -> None:
    """Where each VM runs now, as its instance says."""
    found = await _instances(world, profile)
    nodes = {obj["metadata"]["name"]: (obj.get("status") or {}).get("nodeName") or "" for obj in found}
    fleet.placed = {name: nodes.get(name, "") for name in fleet.names}


async def know_volumes(world: World, profile: Profile, attempt: Attempt, fleet: Fleet) -> None:
    """Put the volumes of the VMs into the ledger."""
    volumes = await volumes_of(world, profile, fleet.names)
    know(attempt, [(Ref(PV, "", volume.name), volume.uid) for volume in volumes])
