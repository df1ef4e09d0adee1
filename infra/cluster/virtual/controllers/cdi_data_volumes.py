"""CDI's DataVolume and DataSource controllers: phases of imports and of clones from snapshots."""

from typing import Any

from infra.cluster.kinds import DATA_SOURCE, DATA_VOLUME, PVC, SNAPSHOT, VOLUME_CLONE_SOURCE
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane, Latest, ensure, owner_reference, unchanged
from infra.cluster.virtual.informer import Key
from infra.errors import NotFound

FINALIZER = "cdi.kubevirt.io/dataVolumeFinalizer"
CLONE_PHASE = "cdi.kubevirt.io/clonePhase"
CLONE_TYPE = "cdi.kubevirt.io/cloneType"
SOURCE_NAMESPACE = "cdi.kubevirt.io/dataSourceNamespace"
SHOWN = {
    "SnapshotClone": "CloneFromSnapshotSourceInProgress",
    "Rebind": "RebindInProgress",
    "Succeeded": "Succeeded",
}
"""Clone phase of the claim -> phase of the DataVolume."""

IN_PROGRESS = frozenset(("CloneFromSnapshotSourceInProgress", "RebindInProgress", "ImportInProgress"))
DONE = ({"type": "Ready", "status": "True"}, {"type": "Running", "status": "False", "reason": "Completed"})


def _progressing(phase: str) -> tuple[Object, Object]:
    """Ready and Running of a DataVolume that is not done, as recorded from the real controller."""
    if phase in IN_PROGRESS:
        who = "Pod" if phase == "ImportInProgress" else "Populator"
        return (
            {"type": "Ready", "status": "False", "reason": "TransferRunning"},
            {"type": "Running", "status": "True", "reason": f"{who} is running"},
        )
    if phase == "ImportScheduled":
        return (
            {"type": "Ready", "status": "False"},
            {"type": "Running", "status": "False", "reason": "ContainerCreating"},
        )
    return {"type": "Ready", "status": "False", "reason": phase}, {"type": "Running", "status": "False"}


def _bound(claim: Object | None, phase: str = "") -> Object:
    if phase == "CloneScheduled":
        return {"type": "Bound", "status": "False", "reason": phase}
    if claim is None and phase != "ImportScheduled":
        return {"type": "Bound", "status": "False", "reason": "NotFound"}
    bound = claim is not None and claim.get("status", {}).get("phase") == "Bound"
    return {"type": "Bound", "status": str(bound), "reason": "Bound" if bound else "Pending"}


def clone_source_name(volume: Object) -> str:
    """The VolumeCloneSource of a DataVolume, in the source's namespace."""
    return f"volume-clone-source-{volume['metadata']['uid']}"


class DataVolumes:
    """Reconciles DataVolumes: three workers."""

    def __init__(self, plane: ControlPlane, api: Cluster) -> None:
        self._plane = plane
        self._api = api
        self._volumes = Latest(plane.informer(DATA_VOLUME))
        self._claims = plane.informer(PVC).cache
        self._sources = plane.informer(DATA_SOURCE).cache
        self._snapshots = plane.informer(SNAPSHOT).cache
        self._importing: set[str] = set()
        cdi = plane.description.cdi_clone
        self._cpu_s = cdi.reconcile_s
        self.queue = plane.queue(self.reconcile, cdi.workers, "cdi datavolume")
        plane.informer(DATA_VOLUME).on_change(self._changed)
        plane.informer(PVC).on_change(self._claim_changed)
        plane.informer(DATA_SOURCE).on_change(self._source_changed)

    def _changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what != "DELETED" and (_unfinished(obj) if before is None else not unchanged(obj, before)):
            self.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def _claim_changed(self, what: str, obj: Object, before: Object | None) -> None:
        owners = obj["metadata"].get("ownerReferences")
        if not owners or owners[0]["kind"] != DATA_VOLUME.kind:
            return
        key = (obj["metadata"]["namespace"], owners[0]["name"])
        if before is None:
            if not _at_rest(obj):
                self.queue.add(key)
            return
        if before["metadata"].get("annotations") is not obj["metadata"].get("annotations"):
            self.queue.add(key)
            return
        if obj.get("status") is not before.get("status") and self._cares(self._volumes.get(key)):
            self.queue.add(key)

    def _cares(self, volume: Object | None) -> bool:
        """Whether a claim's status matters: to an import, and to a clone that was bound late."""
        return volume is not None and (
            "source" in volume["spec"] or volume.get("status", {}).get("phase") == "Succeeded"
        )

    def _source_changed(self, what: str, obj: Object, _: Object | None) -> None:
        if what != "DELETED" and not obj.get("status", {}).get("conditions"):
            self._plane.spawn(self._accept_source(obj), f"cdi datasource {obj['metadata']['name']}")

    async def _accept_source(self, source: Object) -> None:
        snapshot = source["spec"]["source"].get("snapshot") or {}
        found = (snapshot.get("namespace", ""), snapshot.get("name", "")) in self._snapshots
        ready: dict[str, Any] = {"type": "Ready", "status": "True", "reason": "Ready"}
        if snapshot and not found:
            ready = {
                "type": "Ready",
                "status": "False",
                "reason": "NotFound",
                "message": "Snapshot not found",
            }
        meta = source["metadata"]
        await self._api.patch(
            Ref(DATA_SOURCE, meta["namespace"], meta["name"]), {"status": {"conditions": [ready]}}
        )

    async def reconcile(self, key: Key) -> None:
        """Claim and phase of one DataVolume."""
        volume = self._volumes.get(key)
        if volume is None:
            return
        if self._cpu_s:
            await self._plane.clock.sleep(self._cpu_s)
        if "deletionTimestamp" in volume["metadata"]:
            await self._let_go(key, volume)
            return
        phase = volume.get("status", {}).get("phase", "")
        if phase == "Succeeded":
            await self._say_bound(key, volume)
            return
        if phase == "Failed":
            return
        if "source" in volume["spec"]:
            await self._import(key, volume, phase)
        elif "sourceRef" in volume["spec"]:
            await self._clone(key, volume, phase)

    async def _let_go(self, key: Key, volume: Object) -> None:
        """A clone that never succeeded still has its VolumeCloneSource, which nobody else deletes."""
        claim = self._claims.get(key)
        if claim is not None and "sourceRef" in volume["spec"] and not _succeeded(volume):
            await self._delete_clone_source(volume, claim)
        if volume["metadata"].get("finalizers"):
            await self._api.patch(Ref(DATA_VOLUME, *key), {"metadata": {"finalizers": None}})

    async def _clone(self, key: Key, volume: Object, phase: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            if not phase:
                await self._begin_clone(key, volume)
            return
        if self._plane.faults.strikes("clone-fails", volume):
            await self._fail(key, "Clone failed: injected by the fault plan")
            return
        annotations = claim["metadata"].get("annotations") or {}
        shown = SHOWN.get(annotations.get(CLONE_PHASE, ""), phase)
        if shown == phase:
            return
        if shown == "Succeeded":
            await self._delete_clone_source(volume, claim)
        await self._phase(key, shown)
        if shown == "Succeeded":
            change = {"finalizers": None, "annotations": {CLONE_TYPE: annotations.get(CLONE_TYPE)}}
            self._volumes.wrote(await self._api.patch(Ref(DATA_VOLUME, *key), {"metadata": change}))

    async def _begin_clone(self, key: Key, volume: Object) -> None:
        reference = volume["spec"]["sourceRef"]
        source = self._sources.get((reference.get("namespace", key[0]), reference["name"]))
        snapshot = (source or {}).get("spec", {}).get("source", {}).get("snapshot")
        if snapshot is None:
            await self._phase(key, "Pending")
            return
        annotations = {
            "cdi.kubevirt.io/storage.usePopulator": "true",
            "cdi.kubevirt.io/storage.clone.token": "token",
        }
        await self._api.patch(
            Ref(DATA_VOLUME, *key), {"metadata": {"annotations": annotations, "finalizers": [FINALIZER]}}
        )
        await ensure(self._api, self._clone_source(volume, snapshot))
        source_ref = {
            "apiGroup": "cdi.kubevirt.io",
            "kind": VOLUME_CLONE_SOURCE.kind,
            "name": clone_source_name(volume),
        }
        claim = self._claim(key, volume, {"dataSourceRef": source_ref})
        claim["metadata"]["annotations"] = {SOURCE_NAMESPACE: snapshot["namespace"]}
        await ensure(self._api, claim)
        await self._phase(key, "CloneScheduled")

    def _clone_source(self, volume: Object, snapshot: Object) -> Object:
        return {
            "apiVersion": VOLUME_CLONE_SOURCE.api_version,
            "kind": VOLUME_CLONE_SOURCE.kind,
            "metadata": {
                "name": clone_source_name(volume),
                "namespace": snapshot["namespace"],
                "labels": volume["metadata"].get("labels") or {},
            },
            "spec": {
                "source": {"apiGroup": SNAPSHOT.group, "kind": SNAPSHOT.kind, "name": snapshot["name"]},
                "preallocation": False,
            },
        }

    def _claim(self, key: Key, volume: Object, extra: Object) -> Object:
        storage = volume["spec"].get("storage") or volume["spec"].get("pvc")
        meta = {
            "name": key[1],
            "namespace": key[0],
            "labels": volume["metadata"].get("labels") or {},
            "ownerReferences": [owner_reference(volume)],
        }
        spec = {
            "accessModes": storage.get("accessModes") or ["ReadWriteMany"],
            "volumeMode": storage.get("volumeMode", "Block" if "storage" in volume["spec"] else "Filesystem"),
            "storageClassName": storage.get("storageClassName") or self._plane.description.storage_class,
            "resources": storage["resources"],
            **extra,
        }
        return {
            "apiVersion": PVC.api_version,
            "kind": PVC.kind,
            "metadata": meta,
            "spec": spec,
            "status": {"phase": "Pending"},
        }

    async def _import(self, key: Key, volume: Object, phase: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            if not phase:
                await ensure(self._api, self._claim(key, volume, {}))
                await self._phase(key, "ImportScheduled")
        elif (
            claim.get("status", {}).get("phase") == "Bound"
            and volume["metadata"]["uid"] not in self._importing
        ):
            self._importing.add(volume["metadata"]["uid"])
            await self._phase(key, "ImportInProgress")
            self._plane.spawn(self._finish_import(key), f"importer {key[1]}")

    async def _finish_import(self, key: Key) -> None:
        await self._plane.clock.sleep(self._plane.description.cdi_clone.import_s)
        try:
            await self._phase(key, "Succeeded")
        except NotFound:
            return

    async def _delete_clone_source(self, volume: Object, claim: Object) -> None:
        meta = claim["metadata"]
        namespace = (meta.get("annotations") or {}).get(SOURCE_NAMESPACE, meta["namespace"])
        try:
            await self._api.delete(Ref(VOLUME_CLONE_SOURCE, namespace, clone_source_name(volume)))
        except NotFound:
            return

    async def _say_bound(self, key: Key, volume: Object) -> None:
        conditions = volume["status"].get("conditions") or ()
        now = _bound(self._claims.get(key))
        if now["status"] == "True" and now not in conditions:
            others = [each for each in conditions if each["type"] != "Bound"]
            change = {"status": {"conditions": [now, *others]}}
            self._volumes.wrote(await self._api.patch(Ref(DATA_VOLUME, *key), change, subresource="status"))

    async def _phase(self, key: Key, phase: str) -> None:
        done = phase == "Succeeded"
        conditions = [_bound(self._claims.get(key), phase), *(DONE if done else _progressing(phase))]
        status = {"phase": phase, "progress": "100.0%" if done else "N/A", "conditions": conditions}
        change = await self._api.patch(Ref(DATA_VOLUME, *key), {"status": status}, subresource="status")
        self._volumes.wrote(change)

    async def _fail(self, key: Key, message: str) -> None:
        conditions = [{"type": "Running", "status": "False", "reason": "Error", "message": message}]
        status = {"phase": "Failed", "conditions": conditions}
        self._volumes.wrote(
            await self._api.patch(Ref(DATA_VOLUME, *key), {"status": status}, subresource="status")
        )


def _at_rest(claim: Object) -> bool:
    """A claim as a clone leaves it: thousands of them are listed when a cluster is opened again."""
    annotations = claim["metadata"].get("annotations") or {}
    bound = claim.get("status", {}).get("phase") == "Bound"
    return bool(annotations.get(CLONE_PHASE) == "Succeeded" and bound)


def _succeeded(volume: Object) -> bool:
    return bool(volume.get("status", {}).get("phase") == "Succeeded")


def _unfinished(volume: Object) -> bool:
    """Whether a DataVolume seen for the first time needs anything."""
    status = volume.get("status", {})
    bound = any(
        each["type"] == "Bound" and each["status"] == "True" for each in status.get("conditions") or ()
    )
    return status.get("phase") != "Succeeded" or not bound or "deletionTimestamp" in volume["metadata"]
