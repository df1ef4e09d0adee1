"""Preflight: refuse a run that could not be valid, before anything is changed.

One row per check, stored whether the run is refused or not. What this cluster's API does not
serve is skipped, which is said. The canary clone needs the golden image and is made with it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from infra import manifests
from infra.cluster.kinds import (
    DATA_SOURCE,
    DATA_VOLUME,
    DESCHEDULER,
    MACHINE_CONFIG_POOL,
    NAMESPACE,
    NODE,
    SNAPSHOT,
    SNAPSHOT_CLASS,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    VM,
    VMI,
    Kind,
)
from infra.cluster.port import Object, Ref, Scope
from infra.errors import ClusterError, Forbidden, Invalid, InvalidRun, NotFound
from infra.results.port import Cell
from infra.world import World
from tasks.access import denied, named
from tasks.capacity import fit, largest_batch
from tasks.golden_image import IMAGE, root_disk, sources_of
from tasks.inventory import served
from tasks.latency_vms import realtime_vm
from tasks.named_objects import named_objects
from tasks.nodes import GIB, is_ready, need_of, quantity, rooms
from tasks.ownership import find, is_lent, mark_of
from tasks.profile import Profile
from tasks.provisioning import machine_of
from tasks.quiesce import PROBE_KEY, api_answer_s
from tasks.requests import is_marked, resent
from tasks.rights import QUOTA

STAGE = "preflight"
REALTIME_LABEL = "kubevirt.io/realtime=true"


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of `checks`; status is ok, warning, failed or skipped."""

    name: str
    status: str
    found: str = ""
    needed: str = ""
    hint: str = ""


Check = Callable[[World, Profile], Awaitable[list[Finding]]]


async def preflight(world: World, profile: Profile) -> dict[str, Any]:
    """The stage: make every check, store the rows, refuse if one failed.

    Raises:
        InvalidRun: a check failed; the text is the first one's line.
    """
    attempt = world.results.begin(Cell(STAGE, "0"))
    findings = [finding for check in CHECKS for finding in await _made(check, world, profile)]
    attempt.add("checks", [asdict(finding) for finding in findings])
    failed = [finding for finding in findings if finding.status == "failed"]
    summary: dict[str, Any] = {"stage": STAGE, "checks": len(findings), "failed": len(failed)}
    summary["warnings"] = sum(finding.status == "warning" for finding in findings)
    if not failed:
        summary[PROBE_KEY] = await api_answer_s(world, profile)
    attempt.commit(summary, complete=not failed, state=world.runtime.state())
    if failed:
        raise InvalidRun(_line(world, failed[0]))
    return summary


async def _made(check: Check, world: World, profile: Profile) -> list[Finding]:
    """A check whose API is not served, or may not be read, is skipped."""
    name = check.__name__.removeprefix("_").replace("_", " ")
    try:
        return await check(world, profile)
    except NotFound as error:
        return [Finding(name, "skipped", f"not served here: {error}")]
    except Forbidden as error:
        return [
            Finding(name, "warning", f"may not be read: {error}", "", "ask for the right, or check by hand")
        ]


def _line(world: World, finding: Finding) -> str:
    preset = world.versions.get("preset")
    cluster = f"{world.name}:{preset}" if preset else world.name
    needed = f"{finding.needed}, " if finding.needed else ""
    hint = f"; {finding.hint}" if finding.hint else ""
    return f"cluster {cluster}: {finding.name}: {needed}{finding.found}{hint}"


async def _versions(world: World, profile: Profile) -> list[Finding]:
    await find(world, Ref(NAMESPACE, "", profile.namespace))
    found = ", ".join(f"{what} {version}" for what, version in sorted(world.versions.items()))
    return [Finding("API reachable", "ok", found or "answers")]


async def _kinds_served(world: World, profile: Profile) -> list[Finding]:
    findings = []
    for kind in (VM, VMI, DATA_VOLUME, DATA_SOURCE, SNAPSHOT):
        item = await served(world, kind, "", profile.namespace)
        if item.status == "missing":
            hint = "install KubeVirt, CDI and the CSI snapshot controller, or newer ones"
            findings.append(Finding(f"{kind.plural} served", "failed", item.found, kind.api_version, hint))
    return findings or [Finding("kinds served", "ok", "VirtualMachines, DataVolumes, VolumeSnapshots")]


async def _rights(world: World, profile: Profile) -> list[Finding]:
    missing, asked = await denied(world, profile)
    hint = "grant them (virtscale roles prints them), or run as somebody who has them"
    needed = [named(right) for right in missing if not right.optional]
    if needed:
        return [Finding("rights", "failed", f"denied: {', '.join(needed)}", f"{asked} rights", hint)]
    if missing:
        found = f"denied, and done without: {', '.join(map(named, missing))}"
        return [Finding("rights", "warning", found, f"{asked} rights", hint)]
    return [Finding("rights", "ok", f"all {asked} allowed")]


async def _storage_class(world: World, profile: Profile) -> list[Finding]:
    name = profile.vm.storage_class
    found = await _named(world, STORAGE_CLASS, name, "vm.storage_class")
    if isinstance(found, Finding):
        return [found]
    mode = found.get("volumeBindingMode", "Immediate")
    said = mode if mode == "Immediate" else f"{mode}; clones ask for immediate binding by annotation"
    return [Finding("storage class", "ok", f"{name}, {said}")]


async def _snapshot_class(world: World, profile: Profile) -> list[Finding]:
    name = profile.golden_image.snapshot_class
    found = await _named(world, SNAPSHOT_CLASS, name, "golden_image.snapshot_class")
    return [found if isinstance(found, Finding) else Finding("snapshot class", "ok", name)]


async def _named(world: World, kind: Kind, name: str, key: str) -> Object | Finding:
    """A class by its name; those there are, when it is not one of them."""
    items = (await resent(world, lambda: world.cluster.list(Scope(kind)))).items
    names = sorted(obj["metadata"]["name"] for obj in items)
    for obj in items:
        if obj["metadata"]["name"] == name:
            return obj
    what = "storage class" if kind is STORAGE_CLASS else "snapshot class"
    return Finding(what, "failed", f"there is {', '.join(names) or 'none'}", name, f"set {key}")


async def _clone_strategy(world: World, profile: Profile) -> list[Finding]:
    name = profile.vm.storage_class
    found = await resent(world, lambda: world.cluster.get(Ref(STORAGE_PROFILE, "", name)))
    stated = (found.get("status") or {}).get("cloneStrategy") or (found.get("spec") or {}).get(
        "cloneStrategy"
    )
    if stated in (None, "snapshot"):
        return [Finding("clone strategy", "ok", stated or "not stated", "snapshot")]
    hint = f"set spec.cloneStrategy of StorageProfile {name} to snapshot"
    return [Finding("clone strategy", "failed" if stated == "copy" else "warning", stated, "snapshot", hint)]


async def _names(world: World, profile: Profile) -> list[Finding]:
    """Objects that the profile names, and that no dry run of a VirtualMachine would miss."""
    return [await _there(world, profile, key, ref) for key, ref in named_objects(profile)]


async def _there(world: World, profile: Profile, key: str, ref: Ref) -> Finding:
    found = await find(world, ref)
    if found is None:
        hint = f"set {key}, or make it"
        return Finding(key, "failed", "there is none of that name", str(ref), hint)
    if key != "vm.instance_type":
        return Finding(key, "ok", ref.name)
    return _sizes(profile, ref, found["spec"])


def _sizes(profile: Profile, ref: Ref, gives: Object) -> Finding:
    """What an instance type gives is what the profile counts with."""
    shape = profile.vm
    cores, memory_gib = int(gives["cpu"]["guest"]), quantity(gives["memory"]["guest"]) / GIB
    found = f"{ref.name}: {cores} vCPUs, {memory_gib:g} GiB"
    if (cores, memory_gib) == (shape.cores, shape.memory_gib):
        return Finding("vm.instance_type", "ok", found)
    needed = f"{shape.cores} vCPUs, {shape.memory_gib:g} GiB as the profile says"
    hint = f"set vm.cores={cores} and vm.memory_gib={memory_gib:g}, or another vm.instance_type"
    return Finding("vm.instance_type", "failed", found, needed, hint)


async def _namespaces(world: World, profile: Profile) -> list[Finding]:
    findings = []
    for key, name in (("namespace", profile.namespace), ("golden_namespace", profile.golden_namespace)):
        found = await find(world, Ref(NAMESPACE, "", name))
        usable = found is None or is_marked(world, found) or is_lent(found)
        whose = "absent" if found is None else _whose(world, found)
        status, hint = "ok", ""
        if found is not None and not usable:
            status, hint = "failed", f"set {key} to another name{_and_clean(found)}"
        findings.append(
            Finding(f"namespace {name}", status, whose, "absent or this run's" if hint else "", hint)
        )
    return findings


def _run_of(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get(manifests.RUN_LABEL, ""))


def _whose(world: World, obj: Object) -> str:
    if is_marked(world, obj):
        return "this run's"
    if is_lent(obj):
        return "lent"
    run = _run_of(obj)
    return f"it belongs to run {run}" if run else "it is somebody else's"


def _and_clean(obj: Object) -> str:
    run = _run_of(obj)
    return f", or first: virtscale clean {run}" if run else ""


async def _capacity(world: World, profile: Profile) -> list[Finding]:
    vms = largest_batch(profile)
    if not vms:
        return [Finding("capacity", "skipped", "no stage deploys or boots VMs")]
    free = [room.free for room in await rooms(world)]
    result = fit(vms, need_of(profile.vm), free)
    if result.fits:
        return [Finding("capacity", "ok", result.found, result.needed)]
    return [
        Finding(
            "capacity",
            "failed",
            result.found,
            result.needed,
            "lower deploy.batches or boot.batches, or free nodes",
        )
    ]


async def _real_time(world: World, profile: Profile) -> list[Finding]:
    if "latency" not in profile.stages:
        return [Finding("real-time nodes", "skipped", "no stage needs one")]
    nodes = (await resent(world, lambda: world.cluster.list(Scope(NODE, labels=REALTIME_LABEL)))).items
    names = [node["metadata"]["name"] for node in nodes if is_ready(node)]
    if not world.guests.steps:
        found, hint = "no guest can be reached in this world", "leave latency out of --stages"
        return [Finding("real-time nodes", "failed", found, "guests", hint)]
    if not names:
        hint = "label one that is set up for it, or leave latency out of --stages"
        needed = f"a node labelled {REALTIME_LABEL}"
        return [Finding("real-time nodes", "failed", "there is none", needed, hint)]
    return [Finding("real-time nodes", "ok", ", ".join(names))]


async def _guests(world: World, profile: Profile) -> list[Finding]:
    """The prober's own machine has room for the largest storm, and a way there."""
    guests, vms = world.guests, largest_batch(profile)
    if not guests.steps:
        return [Finding("guests", "skipped", f"{guests.path}: boot storms end at Running")]
    try:
        guests.check_room(vms)
        await guests.reach()
    except InvalidRun as error:
        return [
            Finding("guests", "failed", str(error), f"room for {vms}", "see docs/guides/guests-over-ssh.md")
        ]
    return [Finding("guests", "ok", guests.path)]


async def _quota(world: World, profile: Profile) -> list[Finding]:
    items = (await resent(world, lambda: world.cluster.list(Scope(QUOTA, profile.namespace)))).items
    if not items:
        return [Finding("quota", "ok", f"none in {profile.namespace}")]
    names = ", ".join(obj["metadata"]["name"] for obj in items)
    return [
        Finding(
            "quota",
            "warning",
            f"{names} in {profile.namespace}",
            "none",
            "see that it admits the largest batch",
        )
    ]


async def _pools(world: World, _profile: Profile) -> list[Finding]:
    items = (await resent(world, lambda: world.cluster.list(Scope(MACHINE_CONFIG_POOL)))).items
    busy = [text for pool in items if (text := _pool_state(pool))]
    if busy:
        hint = "wait until it is updated, or unpause it"
        return [Finding("machine config pools", "failed", "; ".join(busy), "updated, not paused", hint)]
    return [Finding("machine config pools", "ok", f"{len(items)} updated")]


def _pool_state(pool: Object) -> str:
    name = pool["metadata"]["name"]
    if (pool.get("spec") or {}).get("paused"):
        return f"{name} is paused"
    conditions = (pool.get("status") or {}).get("conditions") or []
    updating = any(c["type"] == "Updating" and c["status"] == "True" for c in conditions)
    return f"{name} is updating" if updating else ""


async def _descheduler(world: World, _profile: Profile) -> list[Finding]:
    items = (await resent(world, lambda: world.cluster.list(Scope(DESCHEDULER)))).items
    active = [obj for obj in items if (obj.get("spec") or {}).get("mode", "Predictive") == "Automatic"]
    if active:
        return [
            Finding(
                "descheduler", "failed", "it evicts (mode Automatic)", "off", "set its mode to Predictive"
            )
        ]
    return [Finding("descheduler", "ok", "does not evict")]


async def _dry_run(world: World, profile: Profile) -> list[Finding]:
    """The API server, its schemas and webhooks look at what would be created."""
    found = await find(world, Ref(NAMESPACE, "", profile.namespace))
    where = profile.namespace if found is not None else "default"
    findings = []
    for manifest in _samples(world, profile, where):
        kind = manifest["kind"]
        try:
            await resent(world, lambda manifest=manifest: world.cluster.create(manifest, dry_run=True))  # type: ignore[misc]
        except Invalid as error:
            hint = "see the profile's vm and golden_image sections"
            findings.append(Finding(f"dry run of {kind}", "failed", str(error), "accepted", hint))
        except ClusterError as error:
            findings.append(Finding(f"dry run of {kind}", "skipped", str(error)))
        else:
            findings.append(Finding(f"dry run of {kind}", "ok", "accepted"))
    return findings


def _samples(world: World, profile: Profile, where: str) -> list[Object]:
    mark, image = mark_of(world, STAGE), profile.golden_image
    name, source = f"{world.run_id}-preflight", sources_of(profile)[0]
    seed = world.guests.cloud_init(name)
    real_time = [realtime_vm(world, profile, 0, where)] if "latency" in profile.stages else []
    return [
        manifests.virtual_machine(name, where, mark, machine_of(profile, seed), source),
        *real_time,
        manifests.golden_data_volume(IMAGE, where, mark, image.url, root_disk(profile)),
        manifests.volume_snapshot(source.name, where, mark, image.snapshot_class, IMAGE),
        manifests.data_source(source.name, where, mark, source.name),
    ]


CHECKS: tuple[Check, ...] = (
    _versions,
    _kinds_served,
    _namespaces,
    _rights,
    _storage_class,
    _snapshot_class,
    _names,
    _clone_strategy,
    _capacity,
    _real_time,
    _guests,
    _quota,
    _pools,
    _descheduler,
    _dry_run,
)
"""In this order: the first that fails is the line that a user reads."""
