"""CDI's clone populator: a temporary claim restores the snapshot, its volume is then rebound."""

from infra.cluster.kinds import PV, PVC, VOLUME_CLONE_SOURCE
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.capacity import SharedCapacity
from infra.cluster.virtual.control_plane import ControlPlane, Latest, ensure
from infra.cluster.virtual.controllers.cdi_data_volumes import CLONE_PHASE, CLONE_TYPE, SOURCE_NAMESPACE
from infra.cluster.virtual.controllers.csi_provisioner import claim_reference
from infra.cluster.virtual.controllers.storage_settings import COPY
from infra.cluster.virtual.informer import Key
from infra.errors import NotFound

FINALIZER = "cdi.kubevirt.io/clonePopulator"
OWNED_BY = "cdi.kubevirt.io/OwnedByUID"
FALLBACK = "cdi.kubevirt.io/cloneFallbackReason"
TARGET = "virtual.virtscale.io/target"
SUFFIXES = ("k", "M", "G", "T"), ("Ki", "Mi", "Gi", "Ti")
BYTES = {"": 1.0} | {
    suffix: base ** (power + 1)
    for base, suffixes in zip((1000.0, 1024.0), SUFFIXES, strict=True)
    for power, suffix in enumerate(suffixes)
}


class ClonePopulator:
    """Reconciles claims whose data comes from a VolumeCloneSource: three workers."""

    def __init__(self, plane: ControlPlane, api: Cluster) -> None:
        self._plane = plane
        self._api = api
        self._claims = Latest(plane.informer(PVC))
        self._volumes = plane.informer(PV).cache
        self._sources = plane.informer(VOLUME_CLONE_SOURCE).cache
        cdi = plane.description.cdi_clone
        self._cpu_s = cdi.reconcile_s
        self.queue = plane.queue(self.reconcile, cdi.workers, "cdi clone populator")
        plane.informer(PVC).on_change(self._changed)
        plane.informer(VOLUME_CLONE_SOURCE).on_change(self._source_changed)
        self._waiting: dict[Key, Key] = {}
        self._copies = SharedCapacity(
            plane.clock, plane.description.guest.disk_gib_per_s * 1024, cdi.copy_mib_per_s
        )
        self._copied: dict[str, bool] = {}

    def _changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what == "DELETED" or (before is not None and _news(obj) == _news(before)):
            return
        meta = obj["metadata"]
        if before is None and (meta.get("annotations") or {}).get(CLONE_PHASE) == "Succeeded":
            return
        target = (meta.get("annotations") or {}).get(TARGET)
        if target:
            namespace, _, name = target.partition("/")
            self.queue.add((namespace, name))
        elif (obj["spec"].get("dataSourceRef") or {}).get("kind") == VOLUME_CLONE_SOURCE.kind:
            self.queue.add((meta["namespace"], meta["name"]))

    def _source_changed(self, what: str, obj: Object, _: Object | None) -> None:
        key = self._waiting.pop((obj["metadata"]["namespace"], obj["metadata"]["name"]), None)
        if key is not None:
            self.queue.add(key)

    async def reconcile(self, key: Key) -> None:
        """SnapshotClone -> Rebind -> Succeeded."""
        claim = self._claims.get(key)
        if claim is None:
            return
        if self._cpu_s:
            await self._plane.clock.sleep(self._cpu_s)
        meta = claim["metadata"]
        phase = (meta.get("annotations") or {}).get(CLONE_PHASE, "")
        scratch = (meta["annotations"][SOURCE_NAMESPACE], f"tmp-pvc-{meta['uid']}")
        if "deletionTimestamp" in meta:
            await self._abandon(key, scratch)
        elif not phase:
            await self._restore(key, claim, scratch)
        elif phase == "SnapshotClone":
            await self._rebind(key, claim, scratch)
        elif phase == "Rebind":
            await self._finish(key, claim, scratch)

    async def _restore(self, key: Key, claim: Object, scratch: Key) -> None:
        where = (scratch[0], claim["spec"]["dataSourceRef"]["name"])
        source = self._sources.get(where)
        if source is None:
            self._waiting[where] = key
            return
        if self._plane.faults.strikes("clone-fails", claim):
            return
        await ensure(self._api, self._scratch_claim(key, claim, scratch, source["spec"]["source"]))
        await self._annotate(key, "SnapshotClone", {"finalizers": [FINALIZER]})

    def _scratch_claim(self, key: Key, claim: Object, scratch: Key, source: Object) -> Object:
        meta, spec = claim["metadata"], claim["spec"]
        labels = {**(meta.get("labels") or {}), OWNED_BY: meta["uid"]}
        annotations = {TARGET: f"{key[0]}/{key[1]}", "virtual.virtscale.io/draw": key[1]}
        return {
            "apiVersion": PVC.api_version,
            "kind": PVC.kind,
            "metadata": {
                "name": scratch[1],
                "namespace": scratch[0],
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "accessModes": spec["accessModes"],
                "volumeMode": spec["volumeMode"],
                "storageClassName": spec["storageClassName"],
                "resources": spec["resources"],
                "dataSource": source,
            },
            "status": {"phase": "Pending"},
        }

    async def _rebind(self, key: Key, claim: Object, scratch: Key) -> None:
        temporary = self._claims.get(scratch)
        if temporary is None or temporary.get("status", {}).get("phase") != "Bound":
            return
        if not self._is_filled(key, claim):
            return
        volume = temporary["spec"]["volumeName"]
        await self._api.patch(Ref(PV, "", volume), {"spec": {"claimRef": claim_reference(claim)}})
        await self._annotate(key, "Rebind", {})

    def _is_filled(self, key: Key, claim: Object) -> bool:
        """Whether the temporary claim has its data: a copy, begun with the first question, takes its time."""
        annotations, uid = claim["metadata"]["annotations"], claim["metadata"]["uid"]
        if annotations.get(CLONE_TYPE) != COPY or FALLBACK in annotations:
            return True
        if uid not in self._copied:
            self._copied[uid] = False
            self._plane.spawn(self._copy(key, claim), f"clone source pod {key[1]}")
        return self._copied[uid]

    async def _copy(self, key: Key, claim: Object) -> None:
        await self._copies.use(_mib(claim["spec"]["resources"]["requests"]["storage"]))
        self._copied[claim["metadata"]["uid"]] = True
        self.queue.add(key)

    async def _finish(self, key: Key, claim: Object, scratch: Key) -> None:
        temporary = self._claims.get(scratch)
        if temporary is not None and temporary.get("status", {}).get("phase") != "Lost":
            return
        await self._annotate(key, "Succeeded", {"finalizers": None})
        self._copied.pop(claim["metadata"]["uid"], None)
        await self._drop(scratch)

    async def _annotate(self, key: Key, phase: str, more: Object) -> None:
        claim = self._claims.get(key)
        annotations = {CLONE_PHASE: phase, CLONE_TYPE: self._way(claim)}
        if claim is not None and self._plane.faults.strikes("clone-fallback", claim):
            annotations |= {CLONE_TYPE: "copy", FALLBACK: "injected by the fault plan"}
        change = {"metadata": {"annotations": annotations, **more}}
        self._claims.wrote(await self._api.patch(Ref(PVC, *key), change))

    def _way(self, claim: Object | None) -> str:
        """How a claim is cloned: as its class says when the clone begins."""
        if claim is None:
            return "snapshot"
        begun = (claim["metadata"].get("annotations") or {}).get(CLONE_TYPE)
        by_class = COPY if claim["spec"]["storageClassName"] in self._plane.copied_classes else "snapshot"
        return str(begun or by_class)

    async def _abandon(self, key: Key, scratch: Key) -> None:
        claim = self._claims.get(key)
        await self._drop(scratch)
        if claim is not None and claim["metadata"].get("finalizers"):
            await self._api.patch(Ref(PVC, *key), {"metadata": {"finalizers": None}})

    async def _drop(self, scratch: Key) -> None:
        try:
            await self._api.delete(Ref(PVC, *scratch))
        except NotFound:
            return


def _mib(size: str) -> float:
    """A disk's size in MiB, of a quantity of bytes."""
    number = size.rstrip("kMGTi")
    return float(number) * BYTES[size[len(number) :]] / 2**20


def _news(claim: Object) -> tuple[str, bool]:
    """What of a claim moves a clone on: its binding and its deletion."""
    return claim.get("status", {}).get("phase", ""), "deletionTimestamp" in claim["metadata"]
