"""Plain values to the manifest of a real-time VirtualMachine, as KubeVirt's admission wants it.

`realtime` needs dedicated CPUs and a passed-through NUMA topology, which needs huge pages; dedicated
CPUs need whole ones. Pod annotations keep the node's own CPU balancing away.
"""

from dataclasses import dataclass
from typing import Any

from infra.cluster.port import Object
from infra.manifests import Machine, Mark, Source, virtual_machine

REALTIME_NODE = {"kubevirt.io/realtime": "true"}
"""virt-handler labels a node so whose kernel.sched_rt_runtime_us is -1."""
TOLERATIONS = [{"operator": "Exists", "effect": "NoSchedule"}]
"""Real-time nodes are often tainted, each cluster in its own way; the label above bounds where a VM goes."""
QUIET = {
    "cpu-load-balancing.crio.io": "disable",
    "cpu-quota.crio.io": "disable",
    "irq-load-balancing.crio.io": "disable",
}
NIC = "rt"


@dataclass(frozen=True, slots=True)
class RealTime:
    """What a real-time VM has beside its shape; `mask` names the vCPUs that run with priority.

    The second NIC is a virtual function of `sriov_network`, or the whole `host_device`; "" is none.
    """

    mask: str
    huge_page: str
    sriov_network: str = ""
    host_device: str = ""


def realtime_machine(
    name: str, where: tuple[str, Mark], shape: Machine, rt: RealTime, source: Source
) -> Object:
    """A halted real-time VirtualMachine; `where` is its namespace and mark."""
    manifest = virtual_machine(name, where[0], where[1], shape, source)
    template = manifest["spec"]["template"]
    template["metadata"] = {
        **template["metadata"],
        "annotations": {**template["metadata"]["annotations"], **QUIET},
    }
    spec = template["spec"]
    spec["evictionStrategy"] = "None"
    spec["nodeSelector"] = dict(REALTIME_NODE)
    spec["tolerations"] = [dict(each) for each in TOLERATIONS]
    domain = spec["domain"]
    domain["cpu"] = _cpu(shape.cores, rt.mask)
    domain["memory"] = {**domain["memory"], "hugepages": {"pageSize": rt.huge_page}}
    domain["devices"].update(autoattachGraphicsDevice=False, autoattachMemBalloon=False)
    _add_nic(spec, rt)
    return manifest


def _cpu(cores: int, mask: str) -> dict[str, Any]:
    return {
        "sockets": 1,
        "cores": cores,
        "threads": 1,
        "model": "host-passthrough",
        "dedicatedCpuPlacement": True,
        "isolateEmulatorThread": True,
        "numa": {"guestMappingPassthrough": {}},
        "realtime": {"mask": mask},
    }


def _add_nic(spec: Object, rt: RealTime) -> None:
    devices = spec["domain"]["devices"]
    if rt.host_device:
        devices["hostDevices"] = [{"name": NIC, "deviceName": rt.host_device}]
    elif rt.sriov_network:
        devices["interfaces"] = [*devices["interfaces"], {"name": NIC, "sriov": {}}]
        spec["networks"] = [*spec["networks"], {"name": NIC, "multus": {"networkName": rt.sriov_network}}]
