"""What is ours, and the ledger that proves it: intents are on the disk before anything is created.

Ours is what carries the run's label and is either in the ledger by UID, or in its intents by name
with the run's secret nonce as annotation. Nothing else is ever deleted.
"""

from collections.abc import Iterable, Mapping

from infra.cluster.kinds import DATA_VOLUME, NAMESPACE, PVC, VM, Kind
from infra.cluster.port import Object, Ref, ref_of
from infra.errors import NotFound, StageError
from infra.manifests import LENT_LABEL, ROOT_DISK, RUN_LABEL, Mark, namespace
from infra.results.port import Attempt
from infra.world import World
from tasks.requests import create_ours, is_marked, resent

Ledger = Mapping[tuple[str, str, str], set[str]]
"""(kind, namespace, name) of every object the run set out to create, to its known UIDs."""

_DISK_KINDS = (DATA_VOLUME, PVC)
_DISK_SUFFIX = f"-{ROOT_DISK}"


def mark_of(world: World, stage: str) -> Mark:
    """How objects of this run and stage are marked."""
    return Mark(world.run_id, world.nonce, stage)


def intend(world: World, attempt: Attempt, refs: Iterable[Ref]) -> None:
    """Put objects into the ledger before they are created; on the disk when this returns.

    So is the run's secret, and before them: who finds intents without it knows that it was lost.
    """
    now, _ = world.clock.wall(), world.nonce
    attempt.add("objects", ({**_named(ref), "intended_at": now} for ref in refs))
    attempt.flush()


def know(attempt: Attempt, objects: Iterable[tuple[Ref, str]]) -> None:
    """Put the UIDs of objects into the ledger (a second row of an object that was intended)."""
    attempt.add("objects", ({**_named(ref), "uid": uid} for ref, uid in objects))


def _named(ref: Ref) -> dict[str, str]:
    return {"kind": ref.kind.kind, "namespace": ref.namespace, "name": ref.name}


def is_ours(world: World, ledger: Ledger, kind: Kind, obj: Object) -> bool:
    """Whether an object may be deleted by this run."""
    meta = obj["metadata"]
    if (meta.get("labels") or {}).get(RUN_LABEL) != world.run_id:
        return False
    uids = _known(ledger, kind, meta.get("namespace", ""), meta["name"])
    if uids is None:
        return False
    return meta.get("uid") in uids or is_marked(world, obj)


def _known(ledger: Ledger, kind: Kind, where: str, name: str) -> set[str] | None:
    """UIDs of an object of the ledger; a VirtualMachine's disk is there by its machine's name."""
    uids = ledger.get((kind.kind, where, name))
    if uids is None and kind in _DISK_KINDS and name.endswith(_DISK_SUFFIX):
        of_machine = ledger.get((VM.kind, where, name.removesuffix(_DISK_SUFFIX)))
        return None if of_machine is None else set()
    return uids


def is_lent(namespace: Object) -> bool:
    """Whether a namespace that is not ours may be used, by a label that its owner set."""
    return (namespace["metadata"].get("labels") or {}).get(LENT_LABEL) == "true"


async def ensure_namespace(world: World, attempt: Attempt, name: str) -> None:
    """Make sure that a namespace exists which is ours, or lent to us.

    Raises:
        StageError: it is somebody else's, or is being deleted.
    """
    ref = Ref(NAMESPACE, "", name)
    found = await find(world, ref)
    if found is None:
        intend(world, attempt, [ref])
        await create_ours(world, namespace(name, mark_of(world, "run")))
    elif not is_marked(world, found) and not is_lent(found):
        raise StageError(f"{ref} exists and is not of run {world.run_id}: name another one in the profile")
    elif "deletionTimestamp" in found["metadata"]:
        raise StageError(f"{ref} is being deleted: wait until it is gone, then run again")


async def ensure(world: World, attempt: Attempt, manifest: Object) -> Object:
    """Make sure that an object of ours exists; the intent is on the disk first."""
    ref = ref_of(manifest)
    found = await find(world, ref)
    if found is not None and is_marked(world, found):
        return found
    intend(world, attempt, [ref])
    return await create_ours(world, manifest)


async def find(world: World, ref: Ref) -> Object | None:
    """An object, or None when there is none."""
    try:
        return await resent(world, lambda: world.cluster.get(ref))
    except NotFound:
        return None
