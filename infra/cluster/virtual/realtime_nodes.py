"""The real-time workers: tainted, so that nothing but what asks for them runs there.

They are besides the workers that the studies count: no batch is placed on them.
"""

from infra.cluster.kinds import ATTACHED_NETWORK, NODE
from infra.cluster.port import Object
from infra.cluster.virtual.description import Description

REALTIME_LABEL = "kubevirt.io/realtime"
"""virt-handler sets it where kernel.sched_rt_runtime_us is -1."""
ROLE = "node-role.kubernetes.io/worker-rt"
HUGE_PAGES_GIB = 64
NICS = 2
NETWORK = "rt-network"


def realtime_nodes(description: Description) -> list[Object]:
    """Every real-time worker, in the order of their names, and the network of their second NICs."""
    nodes = [_node(description, f"worker-rt-{number:03d}") for number in range(description.nodes.realtime)]
    return [*nodes, _NETWORK] if nodes else []


_NETWORK: Object = {
    "apiVersion": ATTACHED_NETWORK.api_version,
    "kind": ATTACHED_NETWORK.kind,
    "metadata": {"name": NETWORK, "namespace": "default"},
    "spec": {"config": '{"cniVersion": "1.0.0", "name": "rt-network", "type": "sriov"}'},
}


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
