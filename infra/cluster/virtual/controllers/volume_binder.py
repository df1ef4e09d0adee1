"""kube-controller-manager's volume binder: claims and volumes that name each other become Bound."""

from infra.cluster.kinds import PV, PVC
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.informer import Key


class Binder:
    """Follows claimRef from volumes to claims."""

    def __init__(self, plane: ControlPlane, api: Cluster) -> None:
        self._plane = plane
        self._api = api
        self._claims = plane.informer(PVC).cache
        self._volumes = plane.informer(PV).cache
        self._work_s = plane.description.csi.bind_s
        self._by_claim: dict[str, str] = {}
        self.queue = plane.queue(self._settle, 10, "volume binder")
        plane.informer(PV).on_change(self._volume_changed)
        plane.informer(PVC).on_change(self._claim_changed)

    def _volume_changed(self, what: str, obj: Object, before: Object | None) -> None:
        if "claimRef" not in obj["spec"] or (before is not None and "claimRef" not in before["spec"]):
            return
        uid = obj["spec"]["claimRef"]["uid"]
        if what == "DELETED":
            self._by_claim.pop(uid, None)
            return
        if before is not None and before["spec"]["claimRef"] is obj["spec"]["claimRef"]:
            return
        if before is not None:
            self._by_claim.pop(before["spec"]["claimRef"]["uid"], None)
            claim = before["spec"]["claimRef"]
            self.queue.add((claim["namespace"], claim["name"]))
        self._by_claim[uid] = obj["metadata"]["name"]
        claim = obj["spec"]["claimRef"]
        if before is not None or obj.get("status", {}).get("phase") != "Bound":
            self.queue.add((claim["namespace"], claim["name"]))
        if self._is_orphan(obj):
            self._plane.spawn(self._release(obj["metadata"]["name"]), f"binder release {uid}")

    def _is_orphan(self, volume: Object) -> bool:
        """Its claim went, perhaps before the volume came or while the two were being bound."""
        reference = volume["spec"]["claimRef"]
        claim = self._claims.get((reference["namespace"], reference["name"]))
        return claim is None or claim["metadata"]["uid"] != reference["uid"]

    def _claim_changed(self, what: str, obj: Object, before: Object | None) -> None:
        uid = obj["metadata"]["uid"]
        if what == "DELETED" and uid in self._by_claim:
            self._plane.spawn(self._release(self._by_claim[uid]), f"binder release {uid}")
        elif what == "ADDED" and uid in self._by_claim and obj.get("status", {}).get("phase") != "Bound":
            self.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _settle(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        if self._work_s:
            await self._plane.clock.sleep(self._work_s)
        volume = self._by_claim.get(claim["metadata"]["uid"])
        phase = claim.get("status", {}).get("phase")
        if volume is None:
            if claim["spec"].get("volumeName") and phase == "Bound":
                await self._api.patch(Ref(PVC, *key), {"status": {"phase": "Lost"}}, subresource="status")
            return
        if phase != "Bound":
            await self._bind(key, claim, volume)

    async def _bind(self, key: Key, claim: Object, volume: str) -> None:
        spec = self._volumes[("", volume)]["spec"]
        await self._api.patch(Ref(PVC, *key), {"spec": {"volumeName": volume}})
        status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}
        await self._api.patch(Ref(PVC, *key), {"status": status}, subresource="status")
        if self._volumes[("", volume)].get("status", {}).get("phase") != "Bound":
            await self._api.patch(Ref(PV, "", volume), {"status": {"phase": "Bound"}}, subresource="status")
            if self._is_orphan(self._volumes[("", volume)]):
                await self._release(volume)

    async def _release(self, volume: str) -> None:
        if ("", volume) in self._volumes:
            await self._api.patch(
                Ref(PV, "", volume), {"status": {"phase": "Released"}}, subresource="status"
            )
