"""The real-time workers: tainted, so that nothing but what asks for them runs there.

They are besides the workers that the studies count: no batch is placed on them.
"""

from infra.cluster.kinds import NODE
from infra.cluster.port import Object
from infra.cluster.virtual.description import Description

REALTIME_LABEL = "kubevirt.io/realtime"
"""virt-handler sets it where kernel.sched_rt_runtime_us is -1."""
ROLE = "node-role.kubernetes.io/worker-rt"
HUGE_PAGES_GIB = 64
NICS = 2


def realtime_nodes(description: Description) -> list[Object]:
    """Every real-time worker, in the order of their names."""
    return [_node(description, f"worker-rt-{number:03d}") for number in range(description.nodes.realtime)]


def _node(description: Description, name: str) -> Object:
    nodes = description.nodes
    room = {
        "cpu": f"{nodes.cpu}",
        "memory": f"{nodes.memory_gib - HUGE_PAGES_GIB}Gi",
        "hugepages-1Gi": f"{HUGE_PAGES_GIB}Gi",
        "pods": str(nodes.max_pods),
        "devices.kubevirt.io/kvm": str(nodes.kvm_devices),
    }
    labels = {ROLE: "", "kubevirt.io/schedulable": "true", "kubernetes.io/hostname": name}
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": description.kubernetes},
    }
    return {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "metadata": {"name": name, "labels": labels | {REALTIME_LABEL: "true", "cpumanager": "true"}},
        "spec": {"taints": [{"key": ROLE, "effect": "NoSchedule"}]},
        "status": status,
    }
