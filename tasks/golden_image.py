"""The golden image: imported once, snapshotted K times, and shown to be cloned from its snapshot.

VM i clones source i mod K. Restores of one snapshot are serialised by the CSI driver, so K is a
key of comparability. Everything here is idempotent: what an interrupted run left is used, what is
missing is made.
"""

from dataclasses import asdict, dataclass
from typing import Any

from infra import manifests
from infra.cluster.kinds import DATA_SOURCE, DATA_VOLUME, PVC, SNAPSHOT, SNAPSHOT_CONTENT
from infra.cluster.port import Object, Ref, Scope
from infra.errors import NotFound, StageError
from infra.manifests import Disk, Source
from infra.results.port import Attempt, Cell
from infra.world import World
from tasks.batch import NS
from tasks.observing import wait_until
from tasks.ownership import ensure, ensure_namespace, find, intend, know, mark_of
from tasks.profile import Profile
from tasks.requests import create_ours, is_marked, resent

IMAGE = "golden"
STAGE = "golden-image"
EXPECTED_CLONE = "snapshot"
FALLBACK = "cdi.kubevirt.io/cloneFallbackReason"
CANARY_KEY = "canary_s"
"""Key of a commit's summary that holds how long one clone took alone."""
CLONE_TYPE = "cdi.kubevirt.io/cloneType"


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """A row of `golden_images`; durations are None for what was there before."""

    name: str
    kind: str
    import_s: float | None
    snapshot_s: float | None
    ready_s: float | None
    size_gib: float
    clone_type: str
    canary_s: float | None


def sources_of(profile: Profile) -> list[Source]:
    """The K DataSources that VMs are cloned from."""
    count = profile.golden_image.sources
    return [Source(profile.golden_namespace, f"{IMAGE}-{k}") for k in range(count)]


def root_disk(profile: Profile) -> Disk:
    """How the root disk of a VM is asked for."""
    vm = profile.vm
    return Disk(vm.disk_gib, vm.storage_class, vm.access_mode, vm.volume_mode)


async def golden_image(world: World, profile: Profile) -> dict[str, Any]:
    """The stage: make sure of the image and store how long that took."""
    attempt = world.results.begin(Cell(STAGE, "0"))
    rows = await ensure_golden_image(world, profile, attempt)
    attempt.add("golden_images", [asdict(row) for row in rows])
    summary = {
        "stage": STAGE,
        "sources": len(rows),
        "import_s": rows[0].import_s,
        "ready_s": rows[0].ready_s,
        "clone_type": rows[0].clone_type,
        CANARY_KEY: rows[0].canary_s,
    }
    attempt.commit(summary, state=world.runtime.state())
    return summary


async def ensure_golden_image(world: World, profile: Profile, attempt: Attempt) -> list[GoldenRow]:
    """Make sure that all sources are ready and clone from their snapshots.

    Raises:
        StageError: an object of that name is not ours, the limit passed, or the canary was copied.
    """
    await ensure_namespace(world, attempt, profile.golden_namespace)
    await ensure_namespace(world, attempt, profile.namespace)
    for manifest in _permission(world, profile):
        await ensure(world, attempt, manifest)
    if await _ready(world, profile):
        return _rows(profile, (None, None, None, None), EXPECTED_CLONE)
    start_ns = world.clock.now_ns()
    imported = await _import(world, profile, attempt)
    snapped = await _snapshot(world, profile, attempt)
    clone_type, canary_s = await canary(world, profile, attempt)
    took = ((imported - start_ns) / NS, (snapped - imported) / NS, (snapped - start_ns) / NS, canary_s)
    return _rows(profile, took, clone_type)


def _rows(profile: Profile, took: tuple[float | None, ...], clone_type: str) -> list[GoldenRow]:
    import_s, snapshot_s, ready_s, canary_s = took
    size_gib = float(profile.golden_image.size_gib)
    return [
        GoldenRow(source.name, SNAPSHOT.kind, import_s, snapshot_s, ready_s, size_gib, clone_type, canary_s)
        for source in sources_of(profile)
    ]


def _permission(world: World, profile: Profile) -> list[Object]:
    """What lets the VMs clone the image; nothing where both share a namespace."""
    where, mark = profile.golden_namespace, mark_of(world, STAGE)
    if where == profile.namespace:
        return []
    return manifests.clone_permission(f"{IMAGE}-cloners", where, mark, profile.namespace)


async def _ready(world: World, profile: Profile) -> bool:
    for source in sources_of(profile):
        found = await find(world, Ref(DATA_SOURCE, source.namespace, source.name))
        if found is None or not is_marked(world, found) or not _condition(found, "Ready"):
            return False
    return True


async def _import(world: World, profile: Profile, attempt: Attempt) -> int:
    """Import the disk; returns when it was seen to have succeeded."""
    image, where, mark = profile.golden_image, profile.golden_namespace, mark_of(world, STAGE)
    vm = profile.vm
    disk = Disk(image.size_gib, vm.storage_class, vm.access_mode, vm.volume_mode)
    await ensure(world, attempt, manifests.golden_data_volume(IMAGE, where, mark, image.url, disk))
    await wait_until(world, Scope(DATA_VOLUME, where), lambda found: _succeeded(found, IMAGE), image.limit_s)
    return world.clock.now_ns()


async def _snapshot(world: World, profile: Profile, attempt: Attempt) -> int:
    """Make the snapshots and their DataSources; returns when all were seen to be ready."""
    image, where, mark = profile.golden_image, profile.golden_namespace, mark_of(world, STAGE)
    names = [source.name for source in sources_of(profile)]
    for name in names:
        manifest = manifests.volume_snapshot(name, where, mark, image.snapshot_class, IMAGE)
        await ensure(world, attempt, manifest)
    await wait_until(world, Scope(SNAPSHOT, where), lambda found: _usable(found, names), image.limit_s)
    know(attempt, await _contents(world, where, names))
    for name in names:
        await ensure(world, attempt, manifests.data_source(name, where, mark, name))
    await wait_until(world, Scope(DATA_SOURCE, where), lambda found: _all_ready(found, names), image.limit_s)
    return world.clock.now_ns()


async def _contents(world: World, where: str, names: list[str]) -> list[tuple[Ref, str]]:
    """The VolumeSnapshotContents of our snapshots, by UID; they carry no label of ours."""
    known = []
    for name in names:
        snapshot = await resent(world, lambda name=name: world.cluster.get(Ref(SNAPSHOT, where, name)))  # type: ignore[misc]
        ref = Ref(SNAPSHOT_CONTENT, "", snapshot["status"].get("boundVolumeSnapshotContentName", ""))
        content = await find(world, ref) if ref.name else None
        if content is not None:
            known.append((ref, content["metadata"]["uid"]))
    return known


def _succeeded(found: dict[str, Object], name: str) -> bool:
    phase = (found.get(name, {}).get("status") or {}).get("phase")
    if phase == "Failed":
        raise StageError(f"DataVolume {name} failed: look at its events; is the address of the image right?")
    return bool(phase == "Succeeded")


def _is_decided(found: dict[str, Object], name: str) -> bool:
    """Whether a clone has succeeded, or says already that it is none of a snapshot."""
    annotations = found.get(name, {}).get("metadata", {}).get("annotations") or {}
    return annotations.get(CLONE_TYPE, EXPECTED_CLONE) != EXPECTED_CLONE or _succeeded(found, name)


def _usable(found: dict[str, Object], names: list[str]) -> bool:
    return all((found.get(name, {}).get("status") or {}).get("readyToUse") is True for name in names)


def _all_ready(found: dict[str, Object], names: list[str]) -> bool:
    return all(name in found and _condition(found[name], "Ready") for name in names)


def _condition(obj: Object, name: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(c.get("type") == name and c.get("status") == "True" for c in conditions)


def canary_s_of(world: World, rows: list[GoldenRow]) -> float | None:
    """How long one clone took on the idle cluster, seconds: just now, or when the image was made."""
    stored = (commit.summary.get(CANARY_KEY) for commit in world.results.commits())
    return next((float(each) for each in (rows[0].canary_s, *stored) if each is not None), None)


async def canary(world: World, profile: Profile, attempt: Attempt) -> tuple[str, float]:
    """Clone the first source once, tell how it was cloned and how long it took, delete the clone.

    Raises:
        StageError: CDI fell back to copying, which is not waited for; the text gives its reason.
    """
    name, where = f"{world.run_id}-canary", profile.namespace
    source = sources_of(profile)[0]
    manifest = manifests.clone_data_volume(name, where, mark_of(world, STAGE), root_disk(profile), source)
    intend(world, attempt, [Ref(DATA_VOLUME, where, name)])
    start_ns = world.clock.now_ns()
    await create_ours(world, manifest)
    scope = Scope(DATA_VOLUME, where, labels=manifests.run_selector(world.run_id, STAGE))
    await wait_until(world, scope, lambda found: _is_decided(found, name), profile.golden_image.limit_s)
    canary_s = (world.clock.now_ns() - start_ns) / NS
    claim = await resent(world, lambda: world.cluster.get(Ref(PVC, where, name)))
    await _remove(world, profile, name)
    return _clone_type(claim), canary_s


def _clone_type(claim: Object) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    kind, fallback = annotations.get(CLONE_TYPE), annotations.get(FALLBACK)
    if fallback or kind != EXPECTED_CLONE:
        why = fallback or "no reason given"
        raise StageError(
            f"canary clone {claim['metadata']['name']}: cloned by {kind or 'an unknown way'}, not from the "
            f"snapshot ({why}); make volume modes, class and StorageProfile of source and clone agree"
        )
    return str(kind)


async def _remove(world: World, profile: Profile, name: str) -> None:
    try:
        await resent(world, lambda: world.cluster.delete(Ref(DATA_VOLUME, profile.namespace, name)))
    except NotFound:
        return
    scope = Scope(PVC, profile.namespace, labels=manifests.run_selector(world.run_id, STAGE))
    await wait_until(world, scope, lambda found: name not in found, profile.golden_image.limit_s)
