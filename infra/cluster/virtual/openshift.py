"""Constants of OpenShift's operators, and of what components do when no object tunes them."""

from pydantic import Field

from infra.cluster.virtual.part import Part, Rate


class OpenShift(Part):
    """The operators that carry tuning out: how long each takes."""

    operators: bool = Field(
        True, description="whether OpenShift's operators and their objects exist; off: KubeVirt alone"
    )
    max_unavailable: int = Field(
        1, ge=1, description="nodes of a MachineConfigPool that change at once; machine-config-operator"
    )
    render_s: float = Field(
        5.0, description="a change to a newly rendered configuration, seconds; assumption"
    )
    reboot_s: float = Field(
        900.0, description="drain and reboot of a node for a new configuration, seconds; assumption"
    )
    tuned_s: float = Field(10.0, description="a Tuned profile's way to a node, seconds; assumption")
    network_s: float = Field(20.0, description="a network policy's way to a node, seconds; assumption")
    reconcile_s: float = Field(
        2.0, description="an operator's answer to a changed field, seconds; assumption"
    )
    clone_strategy: str = Field(
        "snapshot",
        description="cloneStrategy set in the StorageProfile, empty: none; reference study (its method)",
    )
    restart_s: float = Field(20.0, description="restart of the CSI provisioner's pods, seconds; assumption")


class Untuned(Part):
    """What a component does when no object says otherwise."""

    virt_api: Rate = Field(Rate(qps=5, burst=10), description="of one replica; KubeVirt 1.6.0")
    virt_controller: Rate = Field(Rate(qps=200, burst=400), description="of all its queues; KubeVirt 1.6.0")
    virt_handler: Rate = Field(Rate(qps=5, burst=10), description="of one node; KubeVirt 1.6.0")
    kubelet: Rate = Field(Rate(qps=50, burst=100), description="of one node; machine-config-operator")
    provisioner: Rate = Field(
        Rate(qps=5, burst=10), description="of external-provisioner; external-provisioner's default"
    )
    max_pods: int = Field(250, description="kubelet maxPods, pods; machine-config-operator")
    status_max_images: int = Field(
        50, ge=-1, description="nodeStatusMaxImages, images; machine-config-operator"
    )
