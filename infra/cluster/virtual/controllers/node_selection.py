"""The part of kube-scheduler that serves pods with a node selector; the scheduler passes them over.

Few pods have one, so every node is looked at: its labels, its taints, and how many such pods it has.
"""

from infra.cluster.kinds import NODE, POD
from infra.cluster.port import Object
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers.scheduler import bind, refuse
from infra.cluster.virtual.informer import Key


class NodeSelection:
    """Binds pods that name their node by labels."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.rates.client("scheduler")
        self._pods = plane.informer(POD).cache
        self._nodes = plane.informer(NODE).cache
        self._bound: dict[Key, str] = {}
        self.queue = plane.queue(self.schedule, 1, "scheduler of pods with a node selector")
        plane.informer(POD).on_change(self._pod_changed)

    def _pod_changed(self, what: str, obj: Object, _: Object | None) -> None:
        if not obj["spec"].get("nodeSelector"):
            return
        key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
        if what == "DELETED":
            self._bound.pop(key, None)
        elif obj["spec"].get("nodeName"):
            self._bound[key] = obj["spec"]["nodeName"]
        elif "deletionTimestamp" not in obj["metadata"]:
            self.queue.add(key)

    async def schedule(self, key: Key) -> None:
        """One scheduling cycle and its binding."""
        pod = self._pods.get(key)
        if pod is None or pod["spec"].get("nodeName") or key in self._bound:
            return
        await self._plane.clock.sleep(self._plane.description.scheduling.pod_s)
        node = self._choose(pod)
        if node is None:
            why = f"0/{len(self._nodes)} nodes are available: none matches the Pod's node selector"
            await refuse(self._api, key, pod, why)
            return
        self._bound[key] = node
        await bind(self._api, key, node)

    def _choose(self, pod: Object) -> str | None:
        """The node with the fewest such pods among those that match, by name where several are alike."""
        fitting = [obj["metadata"]["name"] for obj in self._nodes.values() if _fits(pod, obj)]
        placed = list(self._bound.values())
        return min(fitting, key=lambda name: (placed.count(name), name), default=None)


def _fits(pod: Object, node: Object) -> bool:
    labels, spec = node["metadata"].get("labels") or {}, node.get("spec") or {}
    wanted = pod["spec"]["nodeSelector"]
    if spec.get("unschedulable") or any(labels.get(name) != value for name, value in wanted.items()):
        return False
    tolerated = pod["spec"].get("tolerations") or ()
    return all(any(_tolerates(each, taint) for each in tolerated) for taint in spec.get("taints") or ())


def _tolerates(toleration: Object, taint: Object) -> bool:
    same_key = toleration.get("key") in (None, taint["key"])
    return same_key and toleration.get("effect") in (None, taint["effect"])
