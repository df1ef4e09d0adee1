"""The node tuning operator: each node gets the profile that the Tuned resources recommend for it."""

import asyncio

from infra.cluster.kinds import NODE, TUNED, TUNED_PROFILE
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers.conditions import reported
from infra.cluster.virtual.description import Rate
from infra.cluster.virtual.informer import Key

NAMESPACE = "openshift-cluster-node-tuning-operator"
STOCK = "openshift-node"
APPLIED = {"Applied": True, "Degraded": False}


class NodeTuning:
    """Profiles follow the Tuned resources, the lowest priority number wins; deleting one rolls back."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.client(Rate(qps=0, burst=0))
        self._tuneds = plane.informer(TUNED).cache
        self._nodes = plane.informer(NODE).cache
        self._queue = plane.queue(self._reconcile, 1, "tuned")
        plane.informer(TUNED).on_change(self._changed)

    def _changed(self, _what: str, obj: Object, before: Object | None) -> None:
        if before is None or obj["spec"] != before["spec"] or _what == "DELETED":
            self._queue.add(("", "profiles"))

    async def _reconcile(self, _: Key) -> None:
        # a tainted worker has what its performance profile made for it
        nodes = [node for node in self._nodes.values() if not node["spec"].get("taints")]
        await asyncio.gather(*(self._node(node) for node in nodes))

    async def _node(self, node: Object) -> None:
        wanted, ref = self._recommended(node), Ref(TUNED_PROFILE, NAMESPACE, node["metadata"]["name"])
        profile = await self._api.get(ref)
        if wanted == profile["spec"]["config"]["tunedProfile"] == profile["status"]["tunedProfile"]:
            return
        await self._api.patch(ref, {"spec": {"config": {"tunedProfile": wanted}}})
        await self._plane.clock.sleep(self._plane.description.openshift.tuned_s)
        status = {"tunedProfile": wanted, "conditions": reported(self._plane.clock, APPLIED)}
        await self._api.patch(ref, {"status": status}, subresource="status")

    def _recommended(self, node: Object) -> str:
        labels = node["metadata"].get("labels") or {}
        found = [
            (each.get("priority", 0), each["profile"])
            for tuned in self._tuneds.values()
            for each in tuned["spec"].get("recommend") or ()
            if any(match.get("label") in labels for match in each.get("match") or ())
        ]
        return str(min(found)[1]) if found else STOCK
