"""What a cluster has of what a run needs: read, never changed; and which stage lacks what."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from infra.cluster.kinds import (
    CDI,
    CUSTOM_RESOURCE,
    DATA_VOLUME,
    HYPERCONVERGED,
    KUBEVIRT,
    MACHINE_CONFIG_POOL,
    NODE,
    SNAPSHOT,
    SNAPSHOT_CLASS,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    VM,
    Kind,
)
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import Forbidden, NotFound
from infra.world import World
from tasks.nodes import CPU, KVM, MEMORY, PODS, is_ready, is_schedulable, rooms
from tasks.profile import StageName
from tasks.requests import resent
from tasks.surroundings import COMPONENTS, stated_rate

GIB = 1024**3
REALTIME_LABEL = "kubevirt.io/realtime"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
VMS: tuple[StageName, ...] = ("golden-image", "deploy", "boot", "io", "latency")
TUNING: tuple[StageName, ...] = ("tuning",)
LATENCY: tuple[StageName, ...] = ("latency",)
GUESTS: tuple[StageName, ...] = ("io", "latency")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing: `status` is ok, missing or unknown; `stages` are those that cannot run without it."""

    name: str
    status: str
    found: str
    stages: tuple[StageName, ...] = ()
    hint: str = ""


Look = Callable[[World], Awaitable[Item]]


async def inventory(world: World) -> list[Item]:
    """Look at everything, once."""
    return [await _looked(name, stages, look, world) for name, stages, look in LOOKS]


def lacking(items: list[Item]) -> dict[str, list[str]]:
    """For each stage that works on the cluster, what it lacks; none: it can run."""
    return {
        stage: [item.name for item in items if item.status == "missing" and stage in item.stages]
        for stage in (*TUNING, *VMS)
    }


async def _looked(name: str, stages: tuple[StageName, ...], look: Look, world: World) -> Item:
    try:
        found = await look(world)
    except NotFound:
        return Item(name, "missing", "not served", stages)
    except Forbidden as error:
        return Item(name, "unknown", f"may not be read: {error}")
    return Item(name, found.status, found.found, stages, found.hint)


def _item(found: str, *, there: bool, hint: str = "") -> Item:
    return Item("", "ok" if there else "missing", found, hint="" if there else hint)


async def _all(world: World, kind: Kind) -> list[Object]:
    return (await resent(world, lambda: list_all(world.cluster, Scope(kind)))).items


async def _kubevirt(world: World) -> Item:
    found = await _all(world, KUBEVIRT)
    told = [
        f"{(each.get('status') or {}).get('observedKubeVirtVersion', 'version not stated')}, "
        f"{(each.get('status') or {}).get('phase', 'phase not stated')}"
        for each in found
    ]
    return _item("; ".join(told) or "no KubeVirt object", there=bool(found), hint="install KubeVirt")


async def _vms(world: World) -> Item:
    return await served(world, VM, "update KubeVirt")


async def _data_volumes(world: World) -> Item:
    return await served(world, DATA_VOLUME, "install CDI")


async def _snapshots(world: World) -> Item:
    return await served(world, SNAPSHOT, "install the CSI snapshot controller with its CRDs")


async def served(world: World, kind: Kind, hint: str, namespace: str = "") -> Item:
    """Whether a kind is served in the version that virtscale speaks; which are, where it is not."""
    try:
        await resent(world, lambda: world.cluster.list(Scope(kind, namespace), limit=1))
    except NotFound:
        versions = await _versions(world, kind)
        found = f"{kind.api_version} is not served"
        return _item(f"{found}, {', '.join(versions)} is" if versions else found, there=False, hint=hint)
    return _item(kind.api_version, there=True)


async def _versions(world: World, kind: Kind) -> list[str]:
    name = f"{kind.plural}.{kind.group}"
    try:
        found = await resent(world, lambda: world.cluster.get(Ref(CUSTOM_RESOURCE, "", name)))
    except (NotFound, Forbidden):
        return []
    return [str(each["name"]) for each in found["spec"]["versions"] if each.get("served")]


async def _cdi(world: World) -> Item:
    found = await _all(world, CDI)
    told = [str((each.get("status") or {}).get("observedVersion", "version not stated")) for each in found]
    return Item("", "ok" if told else "unknown", ", ".join(told) or "no CDI object says its version")


async def _storage_classes(world: World) -> Item:
    found = await _all(world, STORAGE_CLASS)
    told = [_class(each) for each in found]
    return _item(", ".join(told) or "none", there=bool(found), hint="make one for the VMs' disks")


def _class(found: Object) -> str:
    is_default = (found["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    mode = found.get("volumeBindingMode", "Immediate")
    return f"{found['metadata']['name']} ({mode}{', default' if is_default else ''})"


async def _snapshot_classes(world: World) -> Item:
    names = [each["metadata"]["name"] for each in await _all(world, SNAPSHOT_CLASS)]
    return _item(", ".join(names) or "none", there=bool(names), hint="make one of the disks' driver")


async def _storage_profiles(world: World) -> Item:
    found = await _all(world, STORAGE_PROFILE)
    told = [f"{each['metadata']['name']}: {_strategy(each)}" for each in found]
    clones = any(_strategy(each) != "copy" for each in found)
    return _item(", ".join(told) or "none", there=clones, hint="set spec.cloneStrategy to snapshot")


def _strategy(found: Object) -> str:
    said = [(found.get(part) or {}).get("cloneStrategy") for part in ("status", "spec")]
    return str(next((each for each in said if each), "not stated"))


async def _rates(world: World) -> Item:
    """The limits of KubeVirt's clients; what it does not state is its default."""
    found = await _all(world, KUBEVIRT)
    configuration = ((found[0].get("spec") or {}).get("configuration") or {}) if found else {}
    told = [f"{name} {stated_rate(configuration, name)}" for name in COMPONENTS]
    return _item(", ".join(told), there=True)


async def _nodes(world: World) -> Item:
    nodes = await _all(world, NODE)
    ready, schedulable = sum(map(is_ready, nodes)), sum(map(is_schedulable, nodes))
    free = [room.free for room in await rooms(world)]
    amounts = {what: sum(room.get(what, 0.0) for room in free) for what in (CPU, MEMORY, PODS, KVM)}
    told = (
        f"{len(nodes)}, {ready} Ready, {schedulable} schedulable; free {amounts[CPU]:,.0f} CPUs, "
        f"{amounts[MEMORY] / GIB:,.0f} GiB, {amounts[PODS]:,.0f} pods, {amounts[KVM]:,.0f} KVM devices"
    )
    return _item(told, there=schedulable > 0, hint="uncordon some")


async def _realtime(world: World) -> Item:
    nodes = [n for n in await _all(world, NODE) if REALTIME_LABEL in (n["metadata"].get("labels") or {})]
    names = [node["metadata"]["name"] for node in nodes]
    return _item(", ".join(names) or "none", there=bool(names), hint=f"label one {REALTIME_LABEL}=true")


async def _guests(world: World) -> Item:
    """Who can be logged in to: the profile says how."""
    if world.name == "testbed":
        return _item("there are none on a testbed", there=False)
    found = world.guests.path if world.guests.steps else "as the profile's [guests] says"
    return _item(found, there=True)


async def _operators(world: World) -> Item:
    """OpenShift's own: without them most knobs are not applicable."""
    await _all(world, MACHINE_CONFIG_POOL)
    return _item("HyperConverged and MachineConfigPools", there=bool(await _all(world, HYPERCONVERGED)))


LOOKS: tuple[tuple[str, tuple[StageName, ...], Look], ...] = (
    ("KubeVirt", VMS, _kubevirt),
    ("VirtualMachines", VMS, _vms),
    ("CDI", VMS, _cdi),
    ("DataVolumes", VMS, _data_volumes),
    ("VolumeSnapshots", VMS, _snapshots),
    ("storage classes", VMS, _storage_classes),
    ("snapshot classes", VMS, _snapshot_classes),
    ("StorageProfiles", VMS, _storage_profiles),
    ("client rates", (), _rates),
    ("nodes", VMS, _nodes),
    ("real-time nodes", LATENCY, _realtime),
    ("guests", GUESTS, _guests),
    ("OpenShift", TUNING, _operators),
)
