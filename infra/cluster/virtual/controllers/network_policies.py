"""nmstate: a policy's desired state reaches node after node; deleting the policy undoes nothing."""

import asyncio
import json

from infra.cluster.kinds import NETWORK_ENACTMENT, NETWORK_POLICY, NODE
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane, ensure, owner_reference
from infra.cluster.virtual.controllers.conditions import how_many, reported, selects
from infra.cluster.virtual.description import Rate
from infra.cluster.virtual.informer import Key

INTERFACES = "virtual.virtscale.io/interfaces"
"""Annotation of a virtual node: what policies made of its interfaces, JSON by name."""
POLICY = "nmstate.io/policy"


class NetworkPolicies:
    """One enactment per policy and node."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.client(Rate(qps=0, burst=0))
        self._policies = plane.informer(NETWORK_POLICY).cache
        self._enactments = plane.informer(NETWORK_ENACTMENT).cache
        self._nodes = plane.informer(NODE).cache
        self._queue = plane.queue(self._reconcile, 1, "network policies")
        plane.informer(NETWORK_POLICY).on_change(self._changed)

    def _changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what != "DELETED" and (before is None or obj["spec"] != before["spec"]):
            self._queue.add(("", obj["metadata"]["name"]))

    async def _reconcile(self, key: Key) -> None:
        policy = self._policies.get(key)
        if policy is None:
            return
        nodes = [node for node in self._nodes.values() if selects(policy["spec"].get("nodeSelector"), node)]
        waiting = [node for node in nodes if not self._has(policy, node)]
        if waiting:
            await self._report(policy, available=False)
        at_once = how_many(policy["spec"].get("maxUnavailable") or "50%", len(nodes))
        for first in range(0, len(waiting), at_once):
            await asyncio.gather(*(self._enact(policy, node) for node in waiting[first : first + at_once]))
        await self._report(policy, available=True)

    def _has(self, policy: Object, node: Object) -> bool:
        status = (self._enactments.get(("", _name(policy, node))) or {}).get("status") or {}
        return bool(status.get("policyGeneration") == policy["metadata"]["generation"])

    async def _report(self, policy: Object, *, available: bool) -> None:
        states = {"Available": available, "Degraded": False, "Progressing": not available}
        status = {"conditions": reported(self._plane.clock, states)}
        ref = Ref(NETWORK_POLICY, "", policy["metadata"]["name"])
        await self._api.patch(ref, {"status": status}, subresource="status")

    async def _enact(self, policy: Object, node: Object) -> None:
        meta = {
            "name": _name(policy, node),
            "labels": {POLICY: policy["metadata"]["name"]},
            "ownerReferences": [owner_reference(policy)],
        }
        version, kind = NETWORK_ENACTMENT.api_version, NETWORK_ENACTMENT.kind
        await ensure(self._api, {"apiVersion": version, "kind": kind, "metadata": meta})
        await self._enacted(policy, node, available=False)
        await self._plane.clock.sleep(self._plane.description.openshift.network_s)
        await self._configure(node, policy["spec"]["desiredState"].get("interfaces") or [])
        await self._enacted(policy, node, available=True)

    async def _enacted(self, policy: Object, node: Object, *, available: bool) -> None:
        states = {"Available": available, "Failing": False, "Progressing": not available}
        status = {
            "conditions": reported(self._plane.clock, states),
            "desiredState": policy["spec"]["desiredState"],
            "policyGeneration": policy["metadata"]["generation"],
        }
        ref = Ref(NETWORK_ENACTMENT, "", _name(policy, node))
        await self._api.patch(ref, {"status": status}, subresource="status")

    async def _configure(self, node: Object, interfaces: list[Object]) -> None:
        ref = Ref(NODE, "", node["metadata"]["name"])
        found = json.loads((node["metadata"].get("annotations") or {}).get(INTERFACES, "{}"))
        found |= {each["name"]: {**found.get(each["name"], {}), **each} for each in interfaces}
        await self._api.patch(
            ref, {"metadata": {"annotations": {INTERFACES: json.dumps(found, sort_keys=True)}}}
        )


def _name(policy: Object, node: Object) -> str:
    return f"{node['metadata']['name']}.{policy['metadata']['name']}"
