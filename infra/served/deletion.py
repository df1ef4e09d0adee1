"""Deletions that are not in the background: dependents first, or dependents let go."""

from contextlib import suppress

from infra.cluster.port import Cluster, Ref
from infra.cluster.virtual.store import Store
from infra.errors import NotFound
from infra.served.realtime import ServedApiServer

FOREGROUND = "foregroundDeletion"
LOOK_AGAIN_NS = 50_000_000


def release_dependents(store: Store, ref: Ref) -> None:
    """Orphan: what the object owns does not name it as an owner any more."""
    uid = store.get(ref)["metadata"]["uid"]
    for owned in store.dependents(uid):
        owners = store.get(owned)["metadata"]["ownerReferences"]
        left = [owner for owner in owners if owner["uid"] != uid]
        store.patch(owned, {"metadata": {"ownerReferences": left or None}})


async def delete_foreground(server: ServedApiServer, client: Cluster, ref: Ref, uid: str) -> None:
    """Mark the object as being deleted, delete what it owns, and let it go when that is gone."""
    store = server.store
    meta = store.get(ref)["metadata"]
    finalizers = [*(meta.get("finalizers") or ()), FOREGROUND]
    if FOREGROUND not in finalizers[:-1]:
        store.patch(ref, {"metadata": {"finalizers": finalizers}})
    await client.delete(ref, uid=uid, propagation="Foreground")
    for owned in store.dependents(meta["uid"]):
        with suppress(NotFound):
            store.delete(owned, server.stamp())
    _let_go(server, ref, meta["uid"])


def _let_go(server: ServedApiServer, ref: Ref, uid: str) -> None:
    store = server.store
    if store.dependents(uid):
        server.loop.call_at_ns(server.loop.now_ns + LOOK_AGAIN_NS, _let_go, server, ref, uid)
        return
    with suppress(NotFound):
        held = [each for each in store.get(ref)["metadata"].get("finalizers") or () if each != FOREGROUND]
        store.patch(ref, {"metadata": {"finalizers": held or None}})
