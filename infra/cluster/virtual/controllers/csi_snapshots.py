"""The snapshot controller: VolumeSnapshots become ready, their contents go with them."""

from infra.cluster.kinds import PVC, SNAPSHOT, SNAPSHOT_CONTENT
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane, ensure
from infra.cluster.virtual.informer import Key


class Snapshotter:
    """Makes snapshots of bound claims."""

    def __init__(self, plane: ControlPlane, api: Cluster) -> None:
        self._plane = plane
        self._api = api
        self._snapshots = plane.informer(SNAPSHOT).cache
        self._claims = plane.informer(PVC).cache
        self.queue = plane.queue(self._make, 10, "snapshot controller")
        plane.informer(SNAPSHOT).on_change(self._changed)

    def _changed(self, what: str, obj: Object, _: Object | None) -> None:
        if what == "DELETED":
            self._plane.spawn(self._drop(obj), f"snapshot controller drop {obj['metadata']['name']}")
        elif not obj.get("status", {}).get("readyToUse"):
            self.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _make(self, key: Key) -> None:
        snapshot = self._snapshots.get(key)
        if snapshot is None or snapshot.get("status", {}).get("readyToUse"):
            return
        claim = self._claims.get((key[0], snapshot["spec"]["source"].get("persistentVolumeClaimName", "")))
        if claim is None or claim.get("status", {}).get("phase") != "Bound":
            self.queue.add_after(key, 1.0)
            return
        await self._plane.clock.sleep(self._plane.description.csi.snapshot_s)
        name = content_name(snapshot)
        await ensure(self._api, self._content(snapshot, claim, name))
        size = claim["status"]["capacity"]["storage"]
        status = {"readyToUse": True, "restoreSize": size, "boundVolumeSnapshotContentName": name}
        await self._api.patch(Ref(SNAPSHOT, *key), {"status": status}, subresource="status")

    def _content(self, snapshot: Object, claim: Object, name: str) -> Object:
        meta = snapshot["metadata"]
        return {
            "apiVersion": SNAPSHOT_CONTENT.api_version,
            "kind": SNAPSHOT_CONTENT.kind,
            "metadata": {"name": name},
            "spec": {
                "deletionPolicy": "Delete",
                "driver": self._plane.description.provisioner,
                "sourceVolumeMode": claim["spec"].get("volumeMode", "Filesystem"),
                "volumeSnapshotClassName": snapshot["spec"].get("volumeSnapshotClassName"),
                "source": {"volumeHandle": f"rbd-{claim['metadata']['uid']}"},
                "volumeSnapshotRef": {
                    "namespace": meta["namespace"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                },
            },
        }

    async def _drop(self, snapshot: Object) -> None:
        await self._api.delete(Ref(SNAPSHOT_CONTENT, "", content_name(snapshot)))


def content_name(snapshot: Object) -> str:
    """The VolumeSnapshotContent of a snapshot."""
    return f"snapcontent-{snapshot['metadata']['uid']}"
