"""A whole virtual cluster: which controllers run, under which client, and what exists before a run."""

from infra.cluster.kinds import (
    NAMESPACE,
    POD,
    SNAPSHOT_CLASS,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    VM,
)
from infra.cluster.port import Object
from infra.cluster.virtual.api import ApiServer
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers import virt_api
from infra.cluster.virtual.controllers.cdi_clone_populator import ClonePopulator
from infra.cluster.virtual.controllers.cdi_data_volumes import DataVolumes
from infra.cluster.virtual.controllers.csi_provisioner import Provisioner
from infra.cluster.virtual.controllers.csi_snapshots import Snapshotter
from infra.cluster.virtual.controllers.hyperconverged import HyperConverged
from infra.cluster.virtual.controllers.kubelet import Kubelets
from infra.cluster.virtual.controllers.kubelet_settings import KubeletSettings
from infra.cluster.virtual.controllers.machine_config import MachineConfigPools
from infra.cluster.virtual.controllers.network_policies import NetworkPolicies
from infra.cluster.virtual.controllers.node_selection import NodeSelection
from infra.cluster.virtual.controllers.node_tuning import NodeTuning
from infra.cluster.virtual.controllers.scheduler import Scheduler
from infra.cluster.virtual.controllers.storage_settings import StorageSettings, strategies
from infra.cluster.virtual.controllers.virt_config import VirtConfig
from infra.cluster.virtual.controllers.virt_handler import Handlers
from infra.cluster.virtual.controllers.virt_instance import InstanceController
from infra.cluster.virtual.controllers.virt_machine import VirtualMachineController
from infra.cluster.virtual.controllers.volume_attachment import Attachments
from infra.cluster.virtual.controllers.volume_binder import Binder
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.nodes import node_object
from infra.cluster.virtual.platform_objects import kubevirt_object
from infra.cluster.virtual.realtime_nodes import realtime_nodes


def add_controllers(plane: ControlPlane) -> Provisioner:
    """Register every controller with a control plane; returns the one whose lock counts aborts."""
    rates = plane.description.rates
    virt = plane.rates.client("virt_controller")
    VirtualMachineController(plane, virt)
    InstanceController(plane, virt)
    Handlers(plane)
    cdi = plane.client(rates.cdi)
    DataVolumes(plane, cdi)
    ClonePopulator(plane, cdi)
    manager = plane.client(rates.controller_manager)
    Binder(plane, manager)
    Attachments(plane, manager)
    provisioner = Provisioner(plane)
    Snapshotter(plane, manager)
    Scheduler(plane)
    NodeSelection(plane)
    Kubelets(plane)
    VirtConfig(plane)
    return provisioner


def add_operators(plane: ControlPlane) -> None:
    """Register the operators that carry tuning out, where the described cluster has them."""
    if plane.description.openshift.operators:
        MachineConfigPools(plane)
        KubeletSettings(plane)
        HyperConverged(plane)
        NodeTuning(plane)
        NetworkPolicies(plane)
        StorageSettings(plane)


def add_subresources(server: ApiServer, plane: ControlPlane) -> None:
    """Let virt-api serve start and stop: all replicas together have one bucket."""
    api = plane.rates.client("virt_api", replicas=server.description.virt.api_replicas)

    async def start(namespace: str, name: str, body: Object) -> None:
        await virt_api.start(api, namespace, name, body)

    async def stop(namespace: str, name: str, body: Object) -> None:
        await virt_api.stop(api, namespace, name, body)

    server.subresources[VM, "start"] = start
    server.subresources[VM, "stop"] = stop


def _object(kind: object, name: str, namespace: str = "", **fields: object) -> Object:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **fields}  # type: ignore[attr-defined]


def initial_objects(description: Description, draws: Draws, background_pods: int = 0) -> list[Object]:
    """What a cluster has before a run: namespaces, classes, KubeVirt, workers, other pods."""
    provisioner = description.provisioner
    objects = [
        _object(NAMESPACE, name, status={"phase": "Active"})
        for name in ("default", "kube-system", "openshift-cnv")
    ]
    strategy = description.openshift.clone_strategy
    wanted = {"cloneStrategy": strategy} if strategy else {}
    clone = strategies(wanted, description.snapshot_class)
    claims = [{"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}]
    objects += [
        _object(
            STORAGE_CLASS,
            description.storage_class,
            provisioner=provisioner,
            volumeBindingMode="Immediate",
            reclaimPolicy="Delete",
            allowVolumeExpansion=True,
        ),
        _object(SNAPSHOT_CLASS, description.snapshot_class, driver=provisioner, deletionPolicy="Delete"),
        _object(
            STORAGE_PROFILE,
            description.storage_class,
            spec=wanted,
            status={"provisioner": provisioner, "claimPropertySets": claims, **clone},
        ),
        kubevirt_object(description),
    ]
    objects += [node_object(description, draws, number) for number in range(description.nodes.workers)]
    objects += realtime_nodes(description)
    return objects + [_background_pod(description, number) for number in range(background_pods)]


def _background_pod(description: Description, number: int) -> Object:
    """One of the other pods that a cluster runs: spread evenly, small, there before the run."""
    requests = {"cpu": "10m", "memory": "32Mi"}
    spec = {
        "nodeName": f"worker-{number % description.nodes.workers:03d}",
        "containers": [{"name": "pause", "image": "pause", "resources": {"requests": requests}}],
    }
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
    status = {"phase": "Running", "conditions": conditions}
    return _object(POD, f"background-{number:05d}", "default", spec=spec, status=status)
