"""The object store: what etcd and the API server's registry do, pure and synchronous.

Objects are plain dicts that are never mutated once committed: a write makes a new dict that
shares what did not change, so every watcher may hold the same object. No clock of its own: the
time stamp of a creation or deletion is given by the caller.
"""

from collections.abc import Callable
from typing import Any

from infra.cluster.kinds import NAMESPACE, VOLUME_ATTACHMENT, Kind, kind_of
from infra.cluster.port import Object, Ref
from infra.errors import AlreadyExists, Conflict, Invalid, NotFound

Publish = Callable[[Kind, str, Object, Object | None], None]
"""Told of every change: kind, ADDED | MODIFIED | DELETED, new object, the one before."""

_KEPT = frozenset(
    (
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "deletionTimestamp",
        "name",
        "namespace",
    )
)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386 merge patch with structural sharing: returns `target` itself when nothing changes."""
    if not isinstance(patch, dict):
        return target if target == patch and type(target) is type(patch) else patch
    if not isinstance(target, dict):
        target = {}
    result: dict[str, Any] | None = None
    for key, new in patch.items():
        old = target.get(key)
        if isinstance(new, dict):
            new = merge(old, new)
            if new is old and key in target:
                continue
        elif new is None:
            if key in target:
                result = target.copy() if result is None else result
                del result[key]
            continue
        elif new == old and type(new) is type(old):
            continue
        if result is None:
            result = target.copy()
        result[key] = new
    return target if result is None else result


class Store:
    """All objects by kind, with one counter of resource versions, finalizers and owners."""

    def __init__(self, publish: Publish, uid_salt: int = 0) -> None:
        self._publish = publish
        self._salt = uid_salt & 0xFFFFFFFF
        self.resource_version = 0
        self.uids = 0
        self._objects: dict[Kind, dict[tuple[str, str], Object]] = {}
        self._owned: dict[str, dict[Ref, None]] = {}
        self._living: set[str] = set()

    def objects(self, kind: Kind) -> dict[tuple[str, str], Object]:
        """The live objects of a kind by (namespace, name), in order of creation."""
        found = self._objects.get(kind)
        if found is None:
            found = self._objects[kind] = {}
        return found

    def kinds(self) -> list[Kind]:
        """Kinds that have, or had, objects."""
        return list(self._objects)

    def get(self, ref: Ref) -> Object:
        """One object; NotFound with the API server's own wording."""
        shelf = self._objects.get(ref.kind)
        found = shelf.get((ref.namespace, ref.name)) if shelf else None
        if found is None:
            raise NotFound(f'{_resource(ref.kind)} "{ref.name}" not found')
        return found

    def dependents(self, uid: str) -> list[Ref]:
        """What the object with this UID owns, oldest first."""
        return list(self._owned.get(uid, ()))

    def lives(self, uid: str) -> bool:
        """Whether an object with this UID exists."""
        return uid in self._living

    def create(self, obj: Object, stamp: str, *, dry_run: bool = False) -> Object:
        """Add an object: UID, resource version, generation, creation time are set here."""
        kind = kind_of(obj["apiVersion"], obj["kind"])
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        self._check_namespace(kind, key[0])
        shelf = self.objects(kind)
        if key in shelf:
            being = "object is being deleted: " if "deletionTimestamp" in shelf[key]["metadata"] else ""
            raise AlreadyExists(f'{being}{_resource(kind)} "{key[1]}" already exists')
        new = dict(obj)
        new["metadata"] = {**meta, "creationTimestamp": stamp, "generation": 1}
        if dry_run:
            return new
        self.uids += 1
        new["metadata"]["uid"] = f"{self._salt:08x}-0000-4000-8000-{self.uids:012x}"
        self._stamp(new["metadata"])
        if kind.status_subresource and (_custom(kind) or kind is VOLUME_ATTACHMENT):
            new.pop("status", None)
        shelf[key] = new
        self._living.add(new["metadata"]["uid"])
        self._index(Ref(kind, *key), new, None)
        self._publish(kind, "ADDED", new, None)
        return new

    def _check_namespace(self, kind: Kind, namespace: str) -> None:
        if not kind.namespaced:
            return
        found = self.objects(NAMESPACE).get(("", namespace))
        if found is None:
            raise NotFound(f'namespaces "{namespace}" not found')
        if "deletionTimestamp" in found["metadata"]:
            raise Conflict(f"namespace {namespace} is being terminated: no new content can be made in it")

    def _stamp(self, meta: dict[str, Any]) -> None:
        self.resource_version += 1
        meta["resourceVersion"] = str(self.resource_version)

    def _index(self, ref: Ref, new: Object | None, old: Object | None) -> None:
        before = old["metadata"].get("ownerReferences") if old else None
        after = new["metadata"].get("ownerReferences") if new else None
        if before is after:
            return
        for owner in before or ():
            owned = self._owned.get(owner["uid"])
            if owned is not None:
                owned.pop(ref, None)
                if not owned:
                    del self._owned[owner["uid"]]
        for owner in after or ():
            self._owned.setdefault(owner["uid"], {})[ref] = None

    def patch(self, ref: Ref, change: Object, subresource: str = "", *, dry_run: bool = False) -> Object:
        """Merge patch; a change of nothing makes no event and keeps the resource version."""
        old = self.get(ref)
        change = self._allowed(ref.kind, old, change, subresource)
        new: Object = merge(old, change)
        return self._write(ref, (old, new), change, dry_run)

    def _allowed(self, kind: Kind, old: Object, change: Object, subresource: str) -> Object:
        """What of a patch this subresource of this kind may write."""
        if subresource == "status" and len(change) == 1 and "status" in change and kind.status_subresource:
            return change
        wanted = change.get("metadata")
        if wanted and "resourceVersion" in wanted:
            self._check_version(kind, old, wanted["resourceVersion"])
        if kind.status_subresource and subresource == "status":
            written = ("status",) if _custom(kind) else ("status", "metadata")
            change = {key: change[key] for key in written if key in change}
            wanted = change.get("metadata")
        elif subresource == "status":
            raise NotFound(f"the server could not find the requested resource ({kind.plural}/status)")
        elif kind.status_subresource and "status" in change:
            change = {key: value for key, value in change.items() if key != "status"}
        if wanted and not _KEPT.isdisjoint(wanted):
            wanted = {key: value for key, value in wanted.items() if key not in _KEPT}
            change = (
                {**change, "metadata": wanted}
                if wanted
                else {k: v for k, v in change.items() if k != "metadata"}
            )
        return change

    def _check_version(self, kind: Kind, old: Object, wanted: str) -> None:
        if wanted != old["metadata"]["resourceVersion"]:
            raise Conflict(
                f'Operation cannot be fulfilled on {_resource(kind)} "{old["metadata"]["name"]}": '
                "the object has been modified; please apply your changes to the latest version and try again"
            )

    def replace(self, ref: Ref, new: Object, *, dry_run: bool = False) -> Object:
        """Put a whole new object in the old one's place (server-side apply does)."""
        return self._write(ref, (self.get(ref), new), new, dry_run)

    def _write(self, ref: Ref, pair: tuple[Object, Object], change: Object, dry_run: bool) -> Object:
        """Commit the second of a pair of objects; `change` has every top-level key that may differ."""
        old, new = pair
        if new is old or dry_run:
            return new
        kind, namespace, name = ref
        before = old["metadata"]
        new = new.copy()
        new["metadata"] = meta = new["metadata"].copy()
        if self._spec_changed(kind, pair, change):
            meta["generation"] = before.get("generation", 1) + 1
        self._stamp(meta)
        if meta.get("ownerReferences") is not before.get("ownerReferences"):
            self._index(ref, new, old)
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            return self._remove(ref, new)
        self._objects[kind][namespace, name] = new
        self._publish(kind, "MODIFIED", new, old)
        return new

    def _spec_changed(self, kind: Kind, pair: tuple[Object, Object], change: Object) -> bool:
        old, new = pair
        with_status = not kind.status_subresource
        for key in change:
            if key == "metadata" or (key == "status" and not with_status):
                continue
            if new.get(key) is not old.get(key):
                return True
        return False

    def delete(self, ref: Ref, stamp: str, *, uid: str = "", grace_s: int | None = None) -> Object | None:
        """Delete, or mark as being deleted while finalizers (or a pod's grace) hold it.

        Returns the object removed, None when it is only marked.
        """
        old = self.get(ref)
        meta = old["metadata"]
        if uid and meta["uid"] != uid:
            raise Conflict(
                f"the UID in the precondition ({uid}) does not match that of {ref} ({meta['uid']})"
            )
        held = meta.get("finalizers") or self._graceful(ref.kind, old, grace_s)
        if not held:
            return self._remove(ref, {**old, "metadata": self._next(meta)})
        if "deletionTimestamp" not in meta:
            new = {**old, "metadata": self._next({**meta, "deletionTimestamp": stamp})}
            new["metadata"]["generation"] = meta.get("generation", 1) + 1
            self.objects(ref.kind)[ref.namespace, ref.name] = new
            self._publish(ref.kind, "MODIFIED", new, old)
        return None

    def _next(self, meta: dict[str, Any]) -> dict[str, Any]:
        meta = dict(meta)
        self._stamp(meta)
        return meta

    def _graceful(self, kind: Kind, old: Object, grace_s: int | None) -> bool:
        """A pod on a node stays until its kubelet deletes it with grace 0."""
        if kind.kind != "Pod" or grace_s == 0:
            return False
        return bool(old.get("spec", {}).get("nodeName"))

    def _remove(self, ref: Ref, last: Object) -> Object:
        del self.objects(ref.kind)[ref.namespace, ref.name]
        self._living.discard(last["metadata"]["uid"])
        self._index(ref, None, last)
        self._publish(ref.kind, "DELETED", last, None)
        return last

    def clear(self) -> None:
        """Let go of every object."""
        self._objects.clear()
        self._owned.clear()
        self._living.clear()

    def dump(self) -> dict[str, Any]:
        """Everything, as plain JSON: counters and objects in order of creation."""
        shelves = [list(shelf.values()) for shelf in self._objects.values()]
        return {
            "resource_version": self.resource_version,
            "uids": self.uids,
            "salt": self._salt,
            "objects": [obj for shelf in shelves for obj in shelf],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take the content of a `dump`; nobody is told."""
        self.resource_version, self.uids, self._salt = state["resource_version"], state["uids"], state["salt"]
        for obj in state["objects"]:
            kind = kind_of(obj["apiVersion"], obj["kind"])
            key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            self.objects(kind)[key] = obj
            self._living.add(obj["metadata"]["uid"])
            self._index(Ref(kind, *key), obj, None)


def _custom(kind: Kind) -> bool:
    """Whether a CustomResourceDefinition serves it: a write of its status changes nothing else."""
    return kind.group.endswith(("kubevirt.io", "snapshot.storage.k8s.io"))


def _resource(kind: Kind) -> str:
    """How the API server's messages name a kind."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def validated(obj: Object) -> Object:
    """Refuse what an API server would refuse at once: no kind, no name (a review has none)."""
    is_review = str(obj.get("kind", "")).endswith("AccessReview")
    if not obj.get("kind") or not (is_review or obj.get("metadata", {}).get("name")):
        raise Invalid("an object needs apiVersion, kind and metadata.name")
    return obj
