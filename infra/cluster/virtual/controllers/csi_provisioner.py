"""external-provisioner with ceph-csi: volumes from nothing or from a snapshot, and their deletion."""

from infra.cluster.kinds import PV, PVC, SNAPSHOT
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane, announce
from infra.cluster.virtual.controllers.csi_restore_lock import RestoreLock
from infra.cluster.virtual.informer import Key
from infra.errors import AlreadyExists


class Provisioner:
    """Creates a PersistentVolume for each claim of our class, deletes Released ones."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.rates.client("provisioner")
        self._csi = plane.description.csi
        self._claims = plane.informer(PVC).cache
        self._volumes = plane.informer(PV).cache
        self._snapshots = plane.informer(SNAPSHOT).cache
        self.lock = RestoreLock(self._csi.retry_first_s, self._csi.retry_max_s)
        self.queue = plane.queue(self._provision, self._csi.workers, "provisioner")
        self.trash = plane.queue(self._delete, self._csi.delete_workers, "provisioner delete")
        plane.informer(PVC).on_change(self._claim_changed)
        plane.informer(PV).on_change(self._volume_changed)

    def _claim_changed(self, what: str, obj: Object, _: Object | None) -> None:
        spec = obj["spec"]
        if what != "ADDED" or spec.get("volumeName") or self._populated(obj):
            return
        if spec.get("storageClassName") == self._plane.description.storage_class:
            self.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def _populated(self, claim: Object) -> bool:
        """A populator (CDI) fills it: its volume comes from the populator's own claim."""
        source = claim["spec"].get("dataSourceRef") or {}
        return source.get("kind") == "VolumeCloneSource"

    async def _provision(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is None or claim["spec"].get("volumeName"):
            return
        uid = claim["metadata"]["uid"]
        if ("", f"pvc-{uid}") in self._volumes:
            return
        await announce(self._api, claim, "Provisioning", "External provisioner is provisioning volume")
        await self._make_volume(key, claim)
        try:
            await self._api.create(self._volume(claim))
        except AlreadyExists:
            return
        for extra in range(self._csi.calls - 2):
            await announce(self._api, claim, f"ProvisioningSucceeded{extra or ''}", f"pvc-{uid}")

    async def _make_volume(self, key: Key, claim: Object) -> None:
        csi, clock = self._csi, self._plane.clock
        source = claim["spec"].get("dataSource") or {}
        if source.get("kind") == "VolumeSnapshot":
            name = claim["metadata"].get("annotations", {}).get("virtual.virtscale.io/draw", key[1])
            service = self._plane.draws.around_s(csi.restore_s, csi.restore_spread, "restore", name)
            service *= self._plane.faults.slowness
            if await self._copied(claim):
                return
            if csi.restore_lock:
                done = self.lock.reserve(f"{key[0]}/{source['name']}", clock.now_ns(), service)
                await clock.sleep((done - clock.now_ns()) / 1e9)
            else:
                await clock.sleep(service)
        await clock.sleep(csi.unlocked_s)

    async def _copied(self, claim: Object) -> bool:
        """A clone that fell back to a host-assisted copy restores no snapshot."""
        if not self._plane.faults.plan.fault:
            return False
        fault = self._plane.faults.striking("clone-fallback", claim)
        if fault is not None:
            await self._plane.clock.sleep(fault.copy_s)
        return fault is not None

    def _volume(self, claim: Object) -> Object:
        meta, spec = claim["metadata"], claim["spec"]
        return {
            "apiVersion": PV.api_version,
            "kind": PV.kind,
            "metadata": {"name": f"pvc-{meta['uid']}"},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "storageClassName": spec["storageClassName"],
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": claim_reference(claim),
                "csi": {"driver": self._plane.description.provisioner, "volumeHandle": f"rbd-{meta['uid']}"},
            },
        }

    def _volume_changed(self, what: str, obj: Object, _: Object | None) -> None:
        if what != "DELETED" and obj.get("status", {}).get("phase") == "Released":
            self.trash.add(("", obj["metadata"]["name"]))

    async def _delete(self, key: Key) -> None:
        volume = self._volumes.get(key)
        if volume is None or volume.get("status", {}).get("phase") != "Released":
            return
        await self._plane.clock.sleep(self._csi.delete_s)
        await self._api.delete(Ref(PV, "", key[1]), uid=volume["metadata"]["uid"])
        # a new disk of the same name boots for the first time again
        claim = volume["spec"].get("claimRef") or {}
        self._plane.machines.forget_disk(f"{claim.get('namespace')}/{claim.get('name')}")


def claim_reference(claim: Object) -> Object:
    """The claimRef of a volume bound to `claim`."""
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": PVC.kind,
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
