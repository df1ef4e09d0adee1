"""What a batch left behind, counted: objects of ours, and objects that controllers made for them."""

from dataclasses import dataclass
from typing import Any

from infra.cluster.kinds import (
    CONTROLLER_REVISION,
    DATA_VOLUME,
    POD,
    PV,
    PVC,
    SNAPSHOT_CONTENT,
    VM,
    VMI,
    VOLUME_ATTACHMENT,
    VOLUME_CLONE_SOURCE,
    Kind,
)
from infra.cluster.port import Object, Scope, list_all
from infra.errors import NotFound
from infra.manifests import run_selector
from infra.world import World
from tasks.profile import Profile
from tasks.requests import resent

TEMPORARY = "tmp-"
"""CDI's temporary claims and snapshots in the namespace of a clone's source start with this."""


@dataclass(frozen=True, slots=True)
class Traces:
    """By what the derived objects of a batch are known.

    `golden`: CDI's temporary objects are looked for, too; `before` are those that an earlier batch left.
    """

    stage: str
    kinds: tuple[Kind, ...]
    volumes: frozenset[str] = frozenset()
    vm_uids: frozenset[str] = frozenset()
    golden: bool = False
    before: frozenset[str] = frozenset()


def deploy_traces(volumes: frozenset[str], vm_uids: frozenset[str], before: frozenset[str]) -> Traces:
    """After a deploy batch and its deletion nothing may be left of it."""
    return Traces("deploy", (VM, VMI, POD, DATA_VOLUME, PVC), volumes, vm_uids, golden=True, before=before)


def boot_traces() -> Traces:
    """After a boot batch and its stop the VMs stay, their instances and pods may not."""
    return Traces("boot", (VMI, POD))


async def count_leftovers(world: World, profile: Profile, traces: Traces) -> int:
    """How many objects of a batch exist; a kind that the API does not serve counts as none."""
    labels = run_selector(world.run_id, traces.stage)
    found: list[int] = [
        len(await _all(world, Scope(kind, profile.namespace, labels))) for kind in traces.kinds
    ]
    if traces.volumes:
        volumes = traces.volumes
        found.append(sum(obj["metadata"]["name"] in volumes for obj in await _all(world, Scope(PV))))
        found.append(sum(_volume(obj) in volumes for obj in await _all(world, Scope(VOLUME_ATTACHMENT))))
    if traces.vm_uids:
        revisions = await _all(world, Scope(CONTROLLER_REVISION, profile.namespace))
        found.append(sum(_owner(obj) in traces.vm_uids for obj in revisions))
    if traces.golden:
        found.append(len(await temporary_objects(world, profile) - traces.before))
    return sum(found)


async def temporary_objects(world: World, profile: Profile) -> frozenset[str]:
    """UIDs of what CDI has made for clones in the golden namespace, which is this run's alone."""
    where = profile.golden_namespace
    claims = await _all(world, Scope(PVC, where))
    clones = await _all(world, Scope(VOLUME_CLONE_SOURCE, where))
    contents = await _all(world, Scope(SNAPSHOT_CONTENT))
    stray = [obj for obj in contents if _is_of(_snapshot(obj), where)]
    made = [obj for obj in claims if _is_temporary(obj["metadata"]["name"])]
    return frozenset(obj["metadata"]["uid"] for obj in (*stray, *clones, *made))


def _is_of(snapshot: dict[str, Any], where: str) -> bool:
    return snapshot.get("namespace") == where and _is_temporary(snapshot["name"])


def _is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY)


def _snapshot(content: Object) -> dict[str, Any]:
    return content["spec"].get("volumeSnapshotRef") or {}


def _volume(attachment: Object) -> str:
    return str(attachment["spec"].get("source", {}).get("persistentVolumeName", ""))


def _owner(obj: Object) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


async def _all(world: World, scope: Scope) -> list[Object]:
    try:
        return (await resent(world, lambda: list_all(world.cluster, scope))).items
    except NotFound:
        return []
