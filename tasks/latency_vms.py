"""The real-time VirtualMachines of the latency stage: two on a real-time node, up until SSH answers."""

from infra.cluster.kinds import DATA_VOLUME, PV, VM, VMI
from infra.cluster.port import Object, Ref, Scope
from infra.errors import Conflict, GuestError, StageError
from infra.manifests import Disk, Machine, disk_name, run_selector
from infra.realtime_manifests import RealTime, realtime_machine
from infra.results.port import Attempt
from infra.world import World
from tasks.batch import NS
from tasks.deletion import volumes_of
from tasks.golden_image import ensure_golden_image, sources_of
from tasks.latency_plan import VMS
from tasks.observing import Objects, wait_until
from tasks.ownership import ensure, find, know, mark_of
from tasks.profile import Profile
from tasks.requests import resent

STAGE = "latency"
COMMAND_LIMIT_S = 60.0
PAUSE_S = 5.0


def vm_names(world: World) -> list[str]:
    """Names of the run's real-time VMs."""
    return [f"{world.run_id}-l-{i:04d}" for i in range(VMS)]


async def are_up(world: World, profile: Profile) -> bool:
    """Whether all of them run and answer now."""
    for name in vm_names(world):
        found = await find(world, Ref(VMI, profile.namespace, name))
        if found is None or (found.get("status") or {}).get("phase") != "Running":
            return False
        try:
            await world.guests.run(name, "true", COMMAND_LIMIT_S)
        except GuestError:
            return False
    return True


async def ensure_up(world: World, profile: Profile, attempt: Attempt) -> None:
    """Make sure that they exist, run and answer.

    Raises:
        StageError: not within the profile's limit; the text says what the cluster says.
    """
    await ensure_golden_image(world, profile, attempt)
    names, where, limit_s = vm_names(world), profile.namespace, profile.latency.limit_s
    for number, name in enumerate(names):
        made = await ensure(world, attempt, realtime_vm(world, profile, number))
        know(attempt, [(Ref(VM, where, name), made["metadata"]["uid"])])
    labels = run_selector(world.run_id, STAGE)
    await wait_until(world, Scope(DATA_VOLUME, where, labels), lambda seen: _cloned(seen, names), limit_s)
    volumes = await volumes_of(world, profile, names)
    know(attempt, [(Ref(PV, "", volume.name), volume.uid) for volume in volumes])
    for name in names:
        await _start(world, Ref(VM, where, name))
    try:
        await wait_until(world, Scope(VMI, where, labels), lambda seen: _running(seen, names), limit_s)
    except StageError as error:
        raise StageError(f"{error}{await _stated(world, profile)}") from error
    for name in names:
        await _answers(world, name, limit_s)


def realtime_vm(world: World, profile: Profile, number: int, namespace: str = "") -> Object:
    """The manifest of one of them, in the profile's namespace unless another is named."""
    section, shape = profile.latency, profile.vm
    disk = Disk(shape.disk_gib, shape.storage_class, shape.access_mode, shape.volume_mode)
    seed = world.guests.cloud_init(vm_names(world)[number])
    machine = Machine(section.cores, float(section.memory_gib), disk, shape.network, seed)
    rt = RealTime(section.cpus, section.huge_page, section.sriov_network, section.host_device)
    sources = sources_of(profile)
    where = (namespace or profile.namespace, mark_of(world, STAGE))
    return realtime_machine(vm_names(world)[number], where, machine, rt, sources[number % len(sources)])


def _cloned(seen: Objects, names: list[str]) -> bool:
    phases = [(seen.get(disk_name(name), {}).get("status") or {}).get("phase") for name in names]
    if "Failed" in phases:
        raise StageError(f"DataVolume {disk_name(names[phases.index('Failed')])} failed: look at its events")
    return all(phase == "Succeeded" for phase in phases)


def _running(seen: Objects, names: list[str]) -> bool:
    return all((seen.get(name, {}).get("status") or {}).get("phase") == "Running" for name in names)


async def _start(world: World, ref: Ref) -> None:
    """Start a VM; one that was started before answers with a conflict."""
    try:
        await resent(world, lambda: world.cluster.subresource(ref, "start"))
    except Conflict:
        return


async def _stated(world: World, profile: Profile) -> str:
    """Why an instance does not run, in the cluster's words."""
    for name in vm_names(world):
        found = await find(world, Ref(VMI, profile.namespace, name))
        for condition in ((found or {}).get("status") or {}).get("conditions") or []:
            if condition.get("reason") == "Unschedulable":
                return (
                    f"; {name}: {condition.get('message')}; a node labelled kubevirt.io/realtime=true with"
                    " free CPUs and huge pages is needed"
                )
    return ""


async def _answers(world: World, vm: str, limit_s: float) -> None:
    start_ns = world.clock.now_ns()
    while True:
        try:
            await world.guests.run(vm, "true", COMMAND_LIMIT_S)
        except GuestError as error:
            if world.clock.now_ns() - start_ns > limit_s * NS:
                raise StageError(f"{error}; it did not answer within {limit_s:g} s") from error
        else:
            return
        await world.clock.sleep(PAUSE_S)
