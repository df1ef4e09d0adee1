"""kube-scheduler: LeastAllocated, BalancedAllocation and ImageLocality over a sample of the nodes.

The trap of the reference study: with `nodeStatusMaxImages` 50 a node reports only its 50 largest
images, so the launcher image is "missing" on many nodes that have it, ImageLocality favours the
others, and VMs pile up there.
"""

from dataclasses import dataclass

from infra.cluster.kinds import NODE, POD
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers.printable_status import condition
from infra.cluster.virtual.informer import Key

MIN_IMAGE_MB, MAX_IMAGE_MB = 23, 1000
"""kube-scheduler's ImageLocality thresholds."""


@dataclass(slots=True)
class NodeState:
    """What the scheduler knows of a node: allocatable and requested; CPU in millicores, memory in MiB."""

    name: str
    cpu: float
    memory: float
    pods: int
    kvm: int
    has_image: bool
    used_cpu: float = 0.0
    used_memory: float = 0.0
    used_pods: int = 0
    place: int = 0

    def fits(self, cpu: float, memory: float) -> bool:
        """Whether a launcher pod still fits."""
        return (
            self.used_cpu + cpu <= self.cpu
            and self.used_memory + memory <= self.memory
            and self.used_pods < min(self.pods, self.kvm)
        )

    def take_room_of(self, other: "NodeState") -> bool:
        """Take what another state of the same node says of its room; False when that is nothing new."""
        room = (other.cpu, other.memory, other.pods, other.kvm, other.has_image)
        if room == (self.cpu, self.memory, self.pods, self.kvm, self.has_image):
            return False
        self.cpu, self.memory, self.pods, self.kvm, self.has_image = room
        return True


def allocation_score(node: NodeState) -> int:
    """LeastAllocated plus BalancedAllocation, each 0 to 100 and truncated as upstream does."""
    cpu, memory = min(1.0, node.used_cpu / node.cpu), min(1.0, node.used_memory / node.memory)
    least = int((1 - cpu) * 100 + (1 - memory) * 100) // 2
    balanced = int((1 - abs(cpu - memory) / 2) * 100)
    return least + balanced


def image_score(size_mb: float, share_of_nodes: float) -> int:
    """ImageLocality of a node that reports the image: 0 to 100."""
    scaled = min(max(size_mb * share_of_nodes, MIN_IMAGE_MB), MAX_IMAGE_MB)
    return int(100 * (scaled - MIN_IMAGE_MB) / (MAX_IMAGE_MB - MIN_IMAGE_MB))


def quantity(text: str) -> float:
    """CPU in millicores, memory in MiB, or a plain count, of a resource quantity."""
    for suffix, factor in (("m", 1.0), ("Ki", 1 / 1024), ("Mi", 1.0), ("Gi", 1024.0), ("k", 1000.0)):
        if text.endswith(suffix):
            return float(text[: -len(suffix)]) * factor
    return float(text)


def _node_state(obj: Object) -> NodeState:
    status = obj["status"]
    room = status["allocatable"]
    names = (name for image in status.get("images") or () for name in image.get("names") or ())
    return NodeState(
        obj["metadata"]["name"],
        quantity(room["cpu"]) * (1 if room["cpu"].endswith("m") else 1000),
        quantity(room["memory"]),
        int(quantity(room["pods"])),
        int(quantity(room.get("devices.kubevirt.io/kvm", room["pods"]))),
        any("virt-launcher" in name for name in names),
    )


def _is_closed(spec: Object) -> bool:
    """Cordoned, or tainted: pods that tolerate a taint name their node, see node_selection.py."""
    return bool(spec.get("unschedulable") or spec.get("taints"))


class Scheduler:
    """Places pods one at a time."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.client(plane.description.rates.scheduler)
        self._pods = plane.informer(POD).cache
        self._nodes: dict[str, NodeState] = {}
        self._order: list[NodeState] = []
        self._placed: dict[Key, tuple[NodeState, float, float]] = {}
        self._unschedulable: dict[Key, None] = {}
        self._start = 0
        self._requests: dict[tuple[str, str], tuple[float, float]] = {}
        self._image_score = 0
        self._shape = (0.0, 0.0)
        self._scores: list[int] = []
        self._full = 0
        self.queue = plane.queue(self.schedule, 1, "scheduler")
        plane.informer(NODE).on_change(self._node_changed)
        plane.informer(POD).on_change(self._pod_changed)

    def _node_changed(self, what: str, obj: Object, _: Object | None) -> None:
        name, room = obj["metadata"]["name"], obj.get("status", {}).get("allocatable")
        if what == "DELETED" or not room or _is_closed(obj.get("spec", {})):
            return
        node, known = _node_state(obj), self._nodes.get(name)
        if known is None:
            self._nodes[name] = node
        elif not known.take_room_of(node):
            return
        self._order = [self._nodes[name] for name in sorted(self._nodes)]
        for place, node in enumerate(self._order):
            node.place = place
        share = sum(node.has_image for node in self._order) / len(self._order)
        self._image_score = image_score(self._plane.description.nodes.image_gib * 1073.741824, share)
        self._shape, shape = (-1.0, -1.0), self._shape
        self._shape_for(shape)

    def _pod_changed(self, what: str, obj: Object, _: Object | None) -> None:
        meta = obj["metadata"]
        key = (meta["namespace"], meta["name"])
        node = obj["spec"].get("nodeName")
        if what == "DELETED":
            self._release(key)
        elif node is None:
            waits = "deletionTimestamp" not in meta and "nodeSelector" not in obj["spec"]
            if waits and "schedulingGates" not in obj["spec"] and key not in self._placed:
                self.queue.add(key)
        elif key not in self._placed and node in self._nodes:
            self._take(key, obj, self._nodes[node])

    def _request(self, pod: Object) -> tuple[float, float]:
        wanted = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
        texts = (wanted.get("cpu", "0m"), wanted.get("memory", "0Mi"))
        if texts not in self._requests:
            self._requests[texts] = (quantity(texts[0]), quantity(texts[1]))
        return self._requests[texts]

    def _take(self, key: Key, pod: Object, node: NodeState) -> None:
        cpu, memory = self._request(pod)
        node.used_cpu += cpu
        node.used_memory += memory
        node.used_pods += 1
        self._rescore(node)
        self._placed[key] = (node, cpu, memory)

    def _release(self, key: Key) -> None:
        placed = self._placed.pop(key, None)
        if placed is None:
            return
        node, cpu, memory = placed
        node.used_cpu -= cpu
        node.used_memory -= memory
        node.used_pods -= 1
        self._rescore(node)
        for waiting in self._unschedulable:
            self.queue.add(waiting)
        self._unschedulable.clear()

    async def schedule(self, key: Key) -> None:
        """One scheduling cycle and its binding."""
        pod = self._pods.get(key)
        if pod is None or pod["spec"].get("nodeName") or key in self._placed:
            return
        await self._plane.clock.sleep(self._plane.description.scheduling.pod_s)
        node = self._choose(pod)
        if node is None:
            await self._refuse(key, pod)
            return
        self._take(key, pod, node)
        # binding runs beside the next cycle, as upstream
        self._plane.spawn(bind(self._api, key, node.name), f"scheduler bind {key[1]}")

    def _choose(self, pod: Object) -> NodeState | None:
        """The best of the next 100 nodes (or half of all) that fit, as upstream samples them."""
        self._shape_for(self._request(pod))
        order, size = self._order, len(self._order)
        wanted = max(100, size // 2)
        turned = self._scores[self._start :] + self._scores[: self._start]
        if self._full:
            fitting = [place for place, score in enumerate(turned) if score >= 0][:wanted]
        else:
            fitting = list(range(min(wanted, size)))
        if not fitting:
            return None
        top = max(turned[place] for place in fitting) if self._full else max(turned[:wanted])
        best = [place for place in fitting if turned[place] == top]
        chosen = best[self._plane.draws.below(len(best), "scheduler tie", pod["metadata"]["name"])]
        node = order[(self._start + chosen) % size]
        self._start = (self._start + len(fitting)) % size
        return node

    def _shape_for(self, shape: tuple[float, float]) -> None:
        """Scores are kept for one shape of pod: those of a batch are all alike."""
        if shape != self._shape:
            self._shape = shape
            self._scores = [self._score(node) for node in self._order]
            self._full = sum(score < 0 for score in self._scores)

    def _score(self, node: NodeState) -> int:
        if not node.fits(*self._shape):
            return -1
        return allocation_score(node) + (self._image_score if node.has_image else 0)

    def _rescore(self, node: NodeState) -> None:
        score, old = self._score(node), self._scores[node.place]
        self._scores[node.place] = score
        self._full += (score < 0) - (old < 0)

    async def _refuse(self, key: Key, pod: Object) -> None:
        self._unschedulable[key] = None
        why = f"0/{len(self._order)} nodes are available: no room for cpu, memory, pods or kvm"
        await refuse(self._api, key, pod, why)


async def bind(api: Cluster, key: Key, node: str) -> None:
    """Bind a pod to a node."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": key[1]},
        "target": {"kind": "Node", "name": node},
    }
    await api.subresource(Ref(POD, *key), "binding", body)


async def refuse(api: Cluster, key: Key, pod: Object, why: str) -> None:
    """Say once on a pod that no node takes it."""
    if condition(pod, "PodScheduled").get("reason") == "Unschedulable":
        return
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    await api.patch(Ref(POD, *key), {"status": {"conditions": [refused]}}, subresource="status")
