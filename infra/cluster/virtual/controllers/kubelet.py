"""The kubelets: a pod starts when its volumes are attached and its node has a free slot."""

import asyncio

from infra.cluster.kinds import POD, PVC, VOLUME_ATTACHMENT
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers.volume_attachment import attachment_name, claims_of
from infra.cluster.virtual.informer import Key


class Kubelets:
    """All kubelets: one client and a bounded number of starting pods per node."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._kubelet = plane.description.kubelet
        self._claims = plane.informer(PVC).cache
        self._attachments = plane.informer(VOLUME_ATTACHMENT).cache
        self._clients: dict[str, Cluster] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._starting: set[str] = set()
        self._stopping: set[str] = set()
        self._waiters: dict[str, asyncio.Future[None]] = {}
        plane.informer(POD).on_change(self._pod_changed)
        plane.informer(VOLUME_ATTACHMENT).on_change(self._attachment_changed)

    def _pod_changed(self, what: str, obj: Object, _: Object | None) -> None:
        meta, uid = obj["metadata"], obj["metadata"]["uid"]
        if what == "DELETED":
            self._starting.discard(uid)
            self._stopping.discard(uid)
            return
        if not obj["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in meta:
            if uid not in self._stopping:
                self._stopping.add(uid)
                self._plane.spawn(self._stop(obj), f"kubelet stop {meta['name']}")
        elif uid not in self._starting and obj.get("status", {}).get("phase") != "Running":
            self._starting.add(uid)
            self._plane.spawn(self._start(obj), f"kubelet start {meta['name']}")

    def _attachment_changed(self, what: str, obj: Object, _: Object | None) -> None:
        if obj.get("status", {}).get("attached"):
            waiter = self._waiters.pop(obj["metadata"]["name"], None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def _client(self, node: str) -> Cluster:
        if node not in self._clients:
            self._clients[node] = self._plane.rates.client("kubelet", node)
        return self._clients[node]

    def _slot(self, node: str) -> asyncio.Semaphore:
        if node not in self._slots:
            self._slots[node] = asyncio.Semaphore(self._kubelet.parallel)
        return self._slots[node]

    async def _start(self, pod: Object) -> None:
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        key = (meta["namespace"], meta["name"])
        for claim in claims_of(pod):
            await self._attached(key, claim)
        kubelet = self._kubelet
        name = (meta.get("labels") or {}).get("vm.kubevirt.io/name", meta["name"])
        async with self._slot(node):
            if meta["uid"] in self._stopping:
                return
            await self._plane.clock.sleep(
                self._plane.draws.around_s(kubelet.start_s, kubelet.start_spread, "pod start", name)
            )
            if self._plane.faults.lost:
                await self._plane.faults.reach(node)
        conditions = [
            {"type": kind, "status": "True"}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        status = {"phase": "Running", "conditions": conditions}
        await self._client(node).patch(Ref(POD, *key), {"status": status}, subresource="status")

    async def _attached(self, key: Key, claim_name: str) -> None:
        claim = self._claims.get((key[0], claim_name))
        if claim is None or not claim["spec"].get("volumeName"):
            return
        name = attachment_name(claim["spec"]["volumeName"])
        if self._attachments.get(("", name), {}).get("status", {}).get("attached"):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[name] = waiter
        await waiter

    async def _stop(self, pod: Object) -> None:
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        await self._plane.clock.sleep(self._plane.description.virt.domain_stop_s + self._kubelet.stop_s)
        if self._plane.faults.lost:
            await self._plane.faults.reach(node)
        ref = Ref(POD, meta["namespace"], meta["name"])
        await self._client(node).delete(ref, uid=meta["uid"], grace_s=0)
