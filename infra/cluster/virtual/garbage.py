"""The built-in garbage collector and namespace controller of the virtual cluster.

On a real API server these run in kube-controller-manager; here the store tells them of every
removal, and they delete what is left at the rate of their own client.
"""

from collections.abc import Callable

from infra.cluster.kinds import NAMESPACE
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.limits import TokenBucket
from infra.cluster.virtual.loop import VirtualLoop
from infra.cluster.virtual.store import Store
from infra.errors import NotFound

NAMESPACE_REQUEUE_S = 1.0
"""A namespace that is not empty yet is looked at again after this; assumption (upstream backs off)."""


class GarbageCollector:
    """Deletes what a removed object owned, and what a deleted namespace held."""

    def __init__(
        self, loop: VirtualLoop, store: Store, bucket: TokenBucket, stamp: Callable[[], str]
    ) -> None:
        self._loop = loop
        self._store = store
        self._bucket = bucket
        self._stamp = stamp
        self.lag_ns = 0

    def removed(self, obj: Object) -> None:
        """An object is gone: delete its dependents, each with a token of our client."""
        for ref in self._store.dependents(obj["metadata"]["uid"]):
            self._delete_later(ref)

    def _delete_later(self, ref: Ref) -> None:
        leaves = self._bucket.reserve(self._loop.now_ns + self.lag_ns)
        self._loop.call_at_ns(leaves, self._delete, ref)

    def _delete(self, ref: Ref) -> None:
        try:
            owners = self._store.get(ref)["metadata"].get("ownerReferences") or []
            if not any(self._store.lives(owner["uid"]) for owner in owners):
                self._store.delete(ref, self._stamp())
        except NotFound:
            return

    def empty_namespace(self, name: str) -> None:
        """Delete everything in a namespace that is being deleted, then the namespace."""
        inside = [
            Ref(kind, name, key[1])
            for kind in self._store.kinds()
            if kind.namespaced
            for key, obj in self._store.objects(kind).items()
            if key[0] == name and "deletionTimestamp" not in obj["metadata"]
        ]
        for ref in inside:
            self._delete_later(ref)
        if self._holds_any(name):
            self._loop.call_at_ns(
                self._loop.now_ns + round(NAMESPACE_REQUEUE_S * 1e9), self.empty_namespace, name
            )
        else:
            self._store.patch(Ref(NAMESPACE, "", name), {"metadata": {"finalizers": None}})

    def _holds_any(self, name: str) -> bool:
        kinds = [kind for kind in self._store.kinds() if kind.namespaced]
        return any(key[0] == name for kind in kinds for key in self._store.objects(kind))
