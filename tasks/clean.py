"""Clean: delete what a run created, from any state, and nothing else.

Order: VirtualMachines (their disks follow), clones that are left, DataSources and snapshots, the
golden image, then namespaces, only if ours and empty.
"""

import asyncio
from typing import Any

from infra.cluster.kinds import (
    DATA_SOURCE,
    DATA_VOLUME,
    NAMESPACE,
    POD,
    PV,
    PVC,
    ROLE,
    ROLE_BINDING,
    SNAPSHOT,
    SNAPSHOT_CONTENT,
    VM,
    VMI,
    Kind,
)
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import Conflict, NotFound, StageError
from infra.manifests import run_selector
from infra.results.manifest import kept_nonce
from infra.results.port import Cell
from infra.world import World
from tasks.batch import NS
from tasks.golden_image import IMAGE
from tasks.ownership import Ledger, is_ours
from tasks.profile import Profile
from tasks.requests import resent
from tasks.strays import check_strays

STAGE = "clean"
LIMIT_S = 3600.0
EMPTY_LIMIT_S = 30.0
"""How long a namespace of ours may still hold what controllers are taking away."""
GARBAGE_S = 120.0
"""How long the garbage collector may take for what a deleted object owned."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
DELETES_AT_ONCE = 200
CONTENTS = (VM, VMI, POD, DATA_VOLUME, DATA_SOURCE, SNAPSHOT, PVC)
"""A namespace that holds any of these is not empty."""


async def clean(world: World, profile: Profile, copy: str = "0") -> dict[str, Any]:
    """The stage: delete everything of this run and wait until it is gone.

    `copy` names the measured stage whose copy of a virtual cluster this world is.

    Returns how many objects were deleted, by kind.

    Raises:
        StageError: something of ours was still there after an hour, or something is there that carries the
            run's marks and is in no ledger.
        StoreError: the run's secret is gone, so that what it created cannot be told from other objects.
    """
    ledger = world.results.ledger()
    if ledger:
        kept_nonce(world.results.store, world.run_id)
    attempt = world.results.begin(Cell(STAGE, copy))
    places = sorted(
        {where for _, where, _ in ledger if where} | {name for kind, _, name in ledger if kind == "Namespace"}
    )
    deleted: dict[str, int] = {}
    for kind, names in _steps():
        for where in places:
            gone = await _remove(world, ledger, Scope(kind, where, run_selector(world.run_id)), names)
            deleted[kind.kind] = deleted.get(kind.kind, 0) + gone
    await _volumes_gone(world, ledger)
    deleted["Namespace"] = sum(
        await asyncio.gather(*(_remove_namespace(world, ledger, where) for where in places))
    )
    await check_strays(world, ledger, (profile.namespace, profile.golden_namespace))
    world.guests.forget()
    summary = {"stage": STAGE, **{kind: count for kind, count in deleted.items() if count}}
    attempt.commit(summary, state=world.runtime.state())
    return summary


def _steps() -> list[tuple[Kind, str]]:
    """What is deleted in which order; "" is every name, "!name" every other than that."""
    return [
        (VM, ""),
        (VMI, ""),
        (POD, ""),
        (DATA_VOLUME, f"!{IMAGE}"),
        (DATA_SOURCE, ""),
        (SNAPSHOT, ""),
        (DATA_VOLUME, ""),
        (PVC, ""),
        (ROLE_BINDING, ""),
        (ROLE, ""),
    ]


def _wanted(names: str, name: str) -> bool:
    return not (names.startswith("!") and names[1:] == name)


async def _remove(world: World, ledger: Ledger, scope: Scope, names: str) -> int:
    """Delete our objects of a scope and wait until they are gone; returns how many there were."""
    seen: set[str] = set()
    start_ns, pause_s = world.clock.now_ns(), FIRST_PAUSE_S
    while True:
        found = [obj for obj in await _ours(world, ledger, scope) if _wanted(names, obj["metadata"]["name"])]
        if not found:
            return len(seen)
        if world.clock.now_ns() - start_ns > LIMIT_S * NS:
            ref = Ref(scope.kind, scope.namespace, found[0]["metadata"]["name"])
            raise StageError(f"{ref} and {len(found) - 1} others are still there: look at their finalizers")
        waited_s = (world.clock.now_ns() - start_ns) / NS
        fresh = [obj for obj in found if obj["metadata"]["uid"] not in seen and _is_due(obj, waited_s)]
        seen.update(obj["metadata"]["uid"] for obj in fresh)
        await _delete_all(world, scope, fresh)
        await world.clock.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 1.5)


def _is_due(obj: Object, waited_s: float) -> bool:
    """What an owner of ours leaves goes with it; only what does not is deleted by itself."""
    return waited_s > GARBAGE_S or not obj["metadata"].get("ownerReferences")


async def _ours(world: World, ledger: Ledger, scope: Scope) -> list[Object]:
    try:
        found = (await resent(world, lambda: list_all(world.cluster, scope))).items
    except NotFound:
        return []
    return [obj for obj in found if is_ours(world, ledger, scope.kind, obj)]


async def _delete_all(world: World, scope: Scope, objects: list[Object]) -> None:
    turn = asyncio.Semaphore(DELETES_AT_ONCE)
    await asyncio.gather(*(_delete(world, scope, obj, turn) for obj in objects))


async def _delete(world: World, scope: Scope, obj: Object, turn: asyncio.Semaphore) -> None:
    """Delete that very object; one that went or was replaced meanwhile is not touched."""
    meta = obj["metadata"]
    ref = Ref(scope.kind, scope.namespace, meta["name"])
    async with turn:
        try:
            await resent(world, lambda: world.cluster.delete(ref, uid=meta["uid"]))
        except (NotFound, Conflict):
            return


async def _volumes_gone(world: World, ledger: Ledger) -> None:
    """Wait for volumes and snapshot contents that we know by UID; their drivers delete them."""
    for kind in (PV, SNAPSHOT_CONTENT):
        uids = {uid for (name, _, _), known in ledger.items() if name == kind.kind for uid in known if uid}
        if uids:
            await _gone(world, kind, uids)


async def _gone(world: World, kind: Kind, uids: set[str]) -> None:
    start_ns, pause_s = world.clock.now_ns(), FIRST_PAUSE_S
    while True:
        found = (await resent(world, lambda: list_all(world.cluster, Scope(kind)))).items
        left = [obj["metadata"]["name"] for obj in found if obj["metadata"]["uid"] in uids]
        if not left:
            return
        if world.clock.now_ns() - start_ns > LIMIT_S * NS:
            raise StageError(
                f"{kind} {left[0]} and {len(left) - 1} others are still there: is the storage driver well?"
            )
        await world.clock.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 1.5)


async def _remove_namespace(world: World, ledger: Ledger, name: str) -> int:
    """Delete a namespace if it is ours and holds nothing; returns 1 if it did."""
    ref = Ref(NAMESPACE, "", name)
    try:
        found = await resent(world, lambda: world.cluster.get(ref))
    except NotFound:
        return 0
    if not is_ours(world, ledger, NAMESPACE, found) or not await _becomes_empty(world, name):
        return 0
    await resent(world, lambda: world.cluster.delete(ref, uid=found["metadata"]["uid"]))
    await _namespace_gone(world, ref)
    return 1


async def _becomes_empty(world: World, name: str) -> bool:
    start_ns = world.clock.now_ns()
    while not await _is_empty(world, name):
        if await _stays(world, name) or world.clock.now_ns() - start_ns > EMPTY_LIMIT_S * NS:
            return False
        await world.clock.sleep(1.0)
    return True


async def _stays(world: World, name: str) -> bool:
    """Whether a VirtualMachine is there: ours are gone by now, and no controller takes another's away."""
    try:
        found = (await resent(world, lambda: world.cluster.list(Scope(VM, name), limit=1))).items
    except NotFound:
        return False
    return any("deletionTimestamp" not in vm["metadata"] for vm in found)


async def _is_empty(world: World, name: str) -> bool:
    for kind in CONTENTS:
        try:
            if (await resent(world, lambda kind=kind: world.cluster.list(Scope(kind, name), limit=1))).items:  # type: ignore[misc]
                return False
        except NotFound:
            continue
    return True


async def _namespace_gone(world: World, ref: Ref) -> None:
    start_ns, pause_s = world.clock.now_ns(), FIRST_PAUSE_S
    while world.clock.now_ns() - start_ns <= LIMIT_S * NS:
        try:
            await resent(world, lambda: world.cluster.get(ref))
        except NotFound:
            return
        await world.clock.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 1.5)
    raise StageError(f"{ref} is still there after {LIMIT_S:g} s: look at its conditions")
