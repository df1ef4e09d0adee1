"""Schedulable nodes and what is free on them, and how many VMs of a shape would fit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from infra.cluster.kinds import NODE, POD
from infra.cluster.port import Object, Scope, list_all
from infra.manifests import RUN_LABEL
from infra.world import World
from tasks.profile import VirtualMachineShape
from tasks.requests import resent

CPU, MEMORY, PODS, KVM = "cpu", "memory", "pods", "devices.kubevirt.io/kvm"
GIB = 1024**3
CPU_ALLOCATION_RATIO = 10
"""vCPUs per requested CPU: KubeVirt's default."""
LAUNCHER_OVERHEAD_GIB = 0.25
"""What virt-launcher, libvirt and QEMU are charged beside the guest's memory; about KubeVirt's own sum."""

_SUFFIXES = {
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
    "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
}  # fmt: skip


def quantity(text: str | float) -> float:
    """A Kubernetes quantity as a plain number (cores, bytes, pieces)."""
    if isinstance(text, int | float):
        return float(text)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * factor
    return float(text)


def need_of(vm: VirtualMachineShape) -> dict[str, float]:
    """What the pod of one VM asks a node for."""
    return {
        CPU: vm.cores / CPU_ALLOCATION_RATIO,
        MEMORY: (vm.memory_gib + LAUNCHER_OVERHEAD_GIB) * GIB,
        PODS: 1.0,
        KVM: 1.0,
    }


@dataclass(slots=True)
class Room:
    """What is free on a schedulable node: cores, bytes, pods, KVM devices."""

    node: str
    free: dict[str, float]

    def fits(self, need: dict[str, float]) -> int:
        """How many VMs that need this would fit."""
        return min(int(max(0.0, self.free[what]) / need[what] + 1e-9) for what in self.free)


def is_schedulable(node: Object) -> bool:
    """Whether VMs may be placed there: Ready, not cordoned, not tainted against them."""
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    if spec.get("unschedulable") or labels.get("kubevirt.io/schedulable") == "false":
        return False
    if any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or []):
        return False
    return is_ready(node)


def is_ready(node: Object) -> bool:
    """Whether the node's kubelet says Ready; a node without conditions is taken at its word."""
    conditions = (node.get("status") or {}).get("conditions")
    return not conditions or any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def rooms(world: World) -> list[Room]:
    """The free room of every schedulable node, all pods of the cluster counted."""
    nodes = (await resent(world, lambda: list_all(world.cluster, Scope(NODE)))).items
    pods = (await resent(world, lambda: list_all(world.cluster, Scope(POD)))).items
    return free_rooms([node for node in nodes if is_schedulable(node)], pods)


def free_rooms(nodes: Iterable[Object], pods: Iterable[Object]) -> list[Room]:
    """Allocatable of nodes less what running pods request."""
    found = {node["metadata"]["name"]: Room(node["metadata"]["name"], _allocatable(node)) for node in nodes}
    for pod in pods:
        room = found.get(pod["spec"].get("nodeName") or "")
        if room is not None and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            _charge(room, pod)
    return list(found.values())


def _allocatable(node: Object) -> dict[str, float]:
    """Of the resources that matter; KVM devices only where the node says how many it has."""
    stated: dict[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    return {what: quantity(stated[what]) for what in (CPU, MEMORY, PODS, KVM) if what in stated}


def _charge(room: Room, pod: Object) -> None:
    free = room.free
    if PODS in free:
        free[PODS] -= 1
    for container in pod["spec"].get("containers") or []:
        for what, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            if what in free:
                free[what] -= quantity(amount)


async def foreign_pods(world: World) -> set[str]:
    """UIDs of the running pods that are not of this run."""
    pods = (await resent(world, lambda: list_all(world.cluster, Scope(POD)))).items
    return {
        pod["metadata"]["uid"]
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(RUN_LABEL) != world.run_id
        and (pod.get("status") or {}).get("phase") == "Running"
    }


def placement_rows(
    size: int, placed: list[str | None], free: list[Room], vm: VirtualMachineShape
) -> list[dict[str, Any]]:
    """Rows of `placements`: VMs per node, nodes without one as 0.

    `free_share` is the node's share of all VMs that would have fitted before the batch (0 to 1):
    the share it would get if VMs were spread by free room alone.
    """
    need = need_of(vm)
    fits = {room.node: room.fits(need) if room.free else 0 for room in free}
    whole = sum(fits.values())
    counts = dict.fromkeys(sorted({*fits, *(node for node in placed if node)}), 0)
    for node in placed:
        if node:
            counts[node] += 1
    return [
        {
            "batch": size,
            "node": node,
            "vms": vms,
            "free_share": fits[node] / whole if whole and node in fits else None,
        }
        for node, vms in counts.items()
    ]
