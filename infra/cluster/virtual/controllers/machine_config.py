"""The machine config operator: a changed configuration is rendered, then reaches nodes by reboot."""

import asyncio
from collections.abc import Iterator

from infra.cluster.kinds import KUBELET_CONFIG, MACHINE_CONFIG, MACHINE_CONFIG_POOL, NODE, Kind
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane, Latest
from infra.cluster.virtual.controllers.conditions import how_many, reported, same_states, selects
from infra.cluster.virtual.description import Rate
from infra.cluster.virtual.informer import Key
from infra.cluster.virtual.nodes import (
    AUTO_SIZING,
    CURRENT_CONFIG,
    DESIRED_CONFIG,
    KUBELET,
    Settings,
    default_settings,
    dumped,
    node_status,
    rendered_name,
)

ROLE = "machineconfiguration.openshift.io/role"
NO_POOL = "Error: could not find any MachineConfigPool set for KubeletConfig"


class MachineConfigPools:
    """Rolls each pool's configuration out, `maxUnavailable` nodes at a time.

    As the real one: for a moment after a change the pool still says Updated; a KubeletConfig says Success
    when it is accepted; one whose selector matches no pool changes nothing; `autoSizingReserved` below
    `kubeletConfig` is ignored.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.client(Rate(qps=0, burst=0))
        self._pools = plane.informer(MACHINE_CONFIG_POOL).cache
        self._kubelet_configs = plane.informer(KUBELET_CONFIG).cache
        self._machine_configs = plane.informer(MACHINE_CONFIG).cache
        self._nodes = plane.informer(NODE).cache
        self._latest = Latest(plane.informer(NODE))
        self._queue = plane.queue(self._reconcile, 1, "machine config pools")
        self._accepted = plane.queue(self._accept, 1, "kubelet configs")
        plane.informer(MACHINE_CONFIG_POOL).on_change(self._pool_changed)
        plane.informer(KUBELET_CONFIG).on_change(self._kubelet_config_changed)
        plane.informer(MACHINE_CONFIG).on_change(self._config_changed)

    def _pool_changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what != "DELETED" and (before is None or obj["spec"] != before["spec"]):
            self._queue.add(("", obj["metadata"]["name"]))

    def _kubelet_config_changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what != "DELETED":
            if before is not None and obj["spec"] == before["spec"]:
                return
            self._accepted.add(("", obj["metadata"]["name"]))
        self._config_changed(what, obj, before)

    def _config_changed(self, _what: str, _obj: Object, _before: Object | None) -> None:
        for key in self._pools:
            self._queue.add(key)

    async def _accept(self, key: Key) -> None:
        """The condition says that a KubeletConfig was taken, not that a node has it."""
        obj = self._kubelet_configs.get(key)
        if obj is None:
            return
        chosen = any(_chosen(obj, pool) for pool in self._pools.values())
        states, message = ({"Success": True}, "Success") if chosen else ({"Failure": False}, NO_POOL)
        if not same_states(obj, states):
            conditions = reported(self._plane.clock, states, message)
            await self._status(KUBELET_CONFIG, key, {"conditions": conditions})

    async def _status(self, kind: Kind, key: Key, status: Object) -> None:
        await self._api.patch(Ref(kind, *key), {"status": status}, subresource="status")

    async def _reconcile(self, key: Key) -> None:
        while await self._step(key):
            pass

    async def _step(self, key: Key) -> bool:
        """One step of a roll-out: render, or take the next nodes; False when there is nothing to do."""
        pool = await self._api.get(Ref(MACHINE_CONFIG_POOL, *key))
        settings, name = self._wanted(pool)
        if (pool["spec"].get("configuration") or {}).get("name") != name:
            await self._plane.clock.sleep(self._plane.description.openshift.render_s)
            settings, name = self._wanted(pool)
            change = {"spec": {"configuration": {"name": name}}}
            pool = await self._api.patch(Ref(MACHINE_CONFIG_POOL, *key), change)
        nodes = list(self._nodes_of(pool))
        outdated = [node for node in nodes if _config(node) != name]
        paused = bool(pool["spec"].get("paused"))
        await self._report(pool, nodes, outdated)
        if paused or not outdated:
            return False
        at_once = how_many(pool["spec"].get("maxUnavailable") or 1, len(nodes))
        await asyncio.gather(*(self._change(node, name, settings) for node in outdated[:at_once]))
        return True

    def _wanted(self, pool: Object) -> tuple[Settings, str]:
        settings = default_settings(self._plane.description)
        for obj in self._kubelet_configs.values():
            if _chosen(obj, pool):
                spec = obj["spec"]
                settings |= {k: v for k, v in (spec.get("kubeletConfig") or {}).items() if k != AUTO_SIZING}
                settings[AUTO_SIZING] = spec.get(AUTO_SIZING, settings[AUTO_SIZING])
        role = pool["metadata"]["name"]
        extra = sorted(
            (obj["metadata"]["name"], obj["spec"])
            for obj in self._machine_configs.values()
            if selects({ROLE: role}, obj)
        )
        return settings, rendered_name(role, settings, extra)

    def _nodes_of(self, pool: Object) -> Iterator[Object]:
        labels = (pool["spec"].get("nodeSelector") or {}).get("matchLabels")
        for key in sorted(self._nodes):
            node = self._latest.get(key)
            if node is not None and selects(labels, node):
                yield node

    async def _report(self, pool: Object, nodes: list[Object], outdated: list[Object]) -> None:
        spec, before = pool["spec"], pool.get("status") or {}
        done = not outdated
        updating = bool(outdated) and not spec.get("paused")
        states = {
            "Updated": done,
            "Updating": updating,
            "Degraded": False,
            "NodeDegraded": False,
            "RenderDegraded": False,
        }
        status = {
            "configuration": spec["configuration"] if done else before.get("configuration"),
            "machineCount": len(nodes),
            "updatedMachineCount": len(nodes) - len(outdated),
            "readyMachineCount": len(nodes) - len(outdated),
            "unavailableMachineCount": 0,
            "degradedMachineCount": 0,
            "observedGeneration": pool["metadata"]["generation"],
        }
        if same_states(pool, states) and status.items() <= before.items():
            return
        status["conditions"] = reported(self._plane.clock, states)
        await self._status(MACHINE_CONFIG_POOL, ("", pool["metadata"]["name"]), status)

    async def _change(self, node: Object, config: str, settings: Settings) -> None:
        """Cordon, drain, reboot: the kubelet comes back with its new settings."""
        name = node["metadata"]["name"]
        ref = Ref(NODE, "", name)
        cordon = {
            "spec": {"unschedulable": True},
            "metadata": {"annotations": {DESIRED_CONFIG: config}},
        }
        self._latest.wrote(await self._api.patch(ref, cordon))
        await self._plane.clock.sleep(self._plane.description.openshift.reboot_s)
        status = node_status(self._plane.description, self._plane.draws, name, settings)
        await self._api.patch(ref, {"status": status}, subresource="status")
        back = {
            "spec": {"unschedulable": None},
            "metadata": {"annotations": {CURRENT_CONFIG: config, KUBELET: dumped(settings)}},
        }
        self._latest.wrote(await self._api.patch(ref, back))


def _config(node: Object) -> str:
    found = (node["metadata"].get("annotations") or {}).get(CURRENT_CONFIG, "")
    return str(found)


def _chosen(kubelet_config: Object, pool: Object) -> bool:
    selector = kubelet_config["spec"].get("machineConfigPoolSelector") or {}
    return selects(selector.get("matchLabels"), pool)
