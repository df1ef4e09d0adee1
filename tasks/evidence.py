"""What the cluster says of VMs that are not ok, kept before anything of them is taken away.

Of the first few of a batch: the VirtualMachine, its instance, launcher pods, DataVolume and claim as they
are, conditions included, and the Events about them. What is not there, or may not be read, is left out.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from infra.cluster.kinds import DATA_VOLUME, EVENT, POD, PVC, VM, VMI
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import Forbidden, NotFound
from infra.manifests import NONCE, disk_name
from infra.results.port import Attempt
from infra.world import World
from tasks.batch import Batch
from tasks.profile import Profile
from tasks.requests import resent

KEPT = 10
"""VMs of a batch of which something is kept."""
LONGEST = 20_000
"""Characters of a document that are kept; a longer one says at its end how many are missing."""
LAUNCHER_OF = "vm.kubevirt.io/name"
"""Label of a launcher pod: its VirtualMachine."""
LEFT_OUT = frozenset(
    {
        NONCE,
        "managedFields",
        "kubectl.kubernetes.io/last-applied-configuration",
        "userData",
        "userDataBase64",
        "networkData",
        "networkDataBase64",
    }
)
"""Keys that are nobody's business, or no news."""


async def keep_evidence(world: World, profile: Profile, attempt: Attempt, batch: Batch) -> None:
    """Store what there is of the first VMs of a batch that are not ok (table `evidence`)."""
    for i in batch.where("timeout", "failed", "lost")[:KEPT]:
        keys = {"stage": batch.stage, "batch": int(attempt.cell.cell), "vm": batch.names[i]}
        found = [obj async for obj in _objects(world, profile.namespace, batch.names[i])]
        attempt.add("evidence", [{**keys, **document_of(obj)} for obj in found])


async def _objects(world: World, where: str, vm: str) -> AsyncIterator[Object]:
    """A VM's objects, then the Events about each of their names."""
    disk, names = disk_name(vm), [vm, disk_name(vm)]
    for ref in (
        Ref(VM, where, vm),
        Ref(VMI, where, vm),
        Ref(DATA_VOLUME, where, disk),
        Ref(PVC, where, disk),
    ):
        for obj in await _read(world, Scope(ref.kind, where, fields=f"metadata.name={ref.name}")):
            yield obj
    for pod in await _read(world, Scope(POD, where, f"{LAUNCHER_OF}={vm}")):
        names.append(pod["metadata"]["name"])
        yield pod
    for name in names:
        for event in await _read(world, Scope(EVENT, where, fields=f"involvedObject.name={name}")):
            yield event


async def _read(world: World, scope: Scope) -> list[Object]:
    try:
        return (await resent(world, lambda: list_all(world.cluster, scope))).items
    except (NotFound, Forbidden):
        return []


def document_of(obj: Object) -> dict[str, str]:
    """What is kept of an object: its kind, its name, and its manifest as text."""
    text = json.dumps(_shown(obj), indent=1, sort_keys=True)
    return {"kind": obj["kind"], "name": obj["metadata"]["name"], "document": _cut(text)}


def _cut(text: str) -> str:
    missing = len(text) - LONGEST
    return text if missing <= 0 else f"{text[:LONGEST]}\n... cut here: {missing:,} characters are missing"


def _shown(value: Any) -> Any:
    """A manifest without what is left out."""
    if isinstance(value, dict):
        return {key: _shown(inner) for key, inner in value.items() if key not in LEFT_OUT}
    return [_shown(each) for each in value] if isinstance(value, list) else value
