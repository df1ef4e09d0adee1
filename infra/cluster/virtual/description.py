"""What a virtual cluster is: every constant with its unit, and its source or the word assumption.

A preset (`deployments/clusters/*.toml`) overrides what it knows; published figures come from
different clusters, so one set of constants cannot meet them all. Sources are the tags of
docs/concepts/virtual-cluster.md: reference study, kubevirt#N, ceph-csi#N and so on.
"""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.errors import ClusterError

PRESETS = Path(__file__).resolve().parents[3] / "deployments" / "clusters"


class Part(BaseModel):
    """Immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Rate(Part):
    """A client-side rate limit; qps 0 means none."""

    qps: float = Field(ge=0, description="calls per second")
    burst: int = Field(ge=0, description="calls saved up at most")


class Nodes(Part):
    """The workers."""

    workers: int = Field(129, ge=1, description="schedulable workers; reference study")
    cpu: int = Field(112, description="CPUs of a worker; assumption (a neighbour study's R650, 2x28x2)")
    memory_gib: int = Field(512, description="memory of a worker, GiB; assumption (same neighbour)")
    max_pods: int = Field(500, description="kubelet maxPods; reference implementation guide")
    kvm_devices: int = Field(1000, description="devices.kubevirt.io/kvm of a node; virt-handler's default")
    status_max_images: int = Field(
        -1, description="nodeStatusMaxImages; 50 is the kubelet's default, -1 the study's"
    )
    images: int = Field(90, description="images on a node; assumption")
    image_gib: float = Field(0.55, description="size of the virt-launcher image, GiB; assumption")
    background_cpu: float = Field(1.5, description="CPUs requested by other pods, mean of a node; assumption")
    background_spread: float = Field(0.5, description="relative spread of that between nodes; assumption")
    cpu_allocation_ratio: int = Field(10, description="vCPUs per requested CPU; KubeVirt's default")
    launcher_overhead_gib: float = Field(
        0.25, description="memory that virt-launcher adds to a VM's, GiB; assumption"
    )


class Api(Part):
    """The API server, etcd behind it."""

    latency_s: float = Field(
        0.006, description="a call's round trip without queueing; assumption (testbed 4 to 12 ms)"
    )
    service_s: float = Field(
        0.004, description="a write's time in one API worker; measured on a real API server"
    )
    workers: int = Field(48, description="calls served at once, three servers; assumption (16 cores each)")
    webhook_s: float = Field(0.02, description="added to creates that webhooks look at; assumption")
    watch_lag_s: float = Field(
        0.02, description="change to watch event; measured on a real API server (13 to 21 ms)"
    )
    history: int = Field(20000, ge=10, description="changes kept per kind for watches that resume")
    normal_events: bool = Field(
        False, description="store Normal Events; off: they cost a call and are not kept"
    )


class Rates(Part):
    """Client rate limits per component (qps/burst)."""

    virt_api: Rate = Field(
        Rate(qps=100, burst=200), description="of one replica; HCO's annotation, reference study"
    )
    virt_controller: Rate = Field(Rate(qps=100, burst=200), description="HCO's annotation, reference study")
    virt_handler: Rate = Field(
        Rate(qps=100, burst=200), description="of one node; HCO's annotation, reference study"
    )
    cdi: Rate = Field(Rate(qps=200, burst=400), description="assumption (cdi-apiserver's)")
    provisioner: Rate = Field(
        Rate(qps=50, burst=100),
        description="assumption: its default, 5/10, would not let 150 volumes a minute through",
    )
    attacher: Rate = Field(Rate(qps=50, burst=100), description="assumption: raised with the provisioner's")
    scheduler: Rate = Field(Rate(qps=50, burst=100), description="kube-scheduler's default")
    controller_manager: Rate = Field(
        Rate(qps=150, burst=200), description="assumption: OpenShift's, not checked"
    )
    kubelet: Rate = Field(Rate(qps=100, burst=200), description="of one node; reference implementation guide")


class Virt(Part):
    """virt-api, virt-controller and virt-handler."""

    vm_workers: int = Field(3, description="VM queue threads; KubeVirt 1.6")
    vmi_workers: int = Field(10, description="VMI queue threads; KubeVirt 1.6")
    api_replicas: int = Field(13, description="virt-api replicas: nodes / 10; KubeVirt 1.6")
    vm_reconcile_s: float = Field(0.004, description="CPU of one VM reconcile; assumption")
    vmi_reconcile_s: float = Field(0.002, description="CPU of one VMI reconcile; assumption")
    disruption_budgets: bool = Field(
        False, description="a PodDisruptionBudget per VMI; before kubevirt#13764"
    )
    domain_start_s: float = Field(1.2, description="virt-handler: hand-off to running domain; assumption")
    domain_spread: float = Field(0.15, description="log spread of that; assumption")
    domain_stop_s: float = Field(0.8, description="virt-handler: stop with grace 0; assumption")


class Cdi(Part):
    """The clone path."""

    workers: int = Field(3, description="MaxConcurrentReconciles of each controller; CDI")
    reconcile_s: float = Field(0.003, description="CPU of one reconcile; assumption")
    import_s: float = Field(95.0, description="import of the golden image; assumption")


class Csi(Part):
    """Provisioner, snapshotter and binder."""

    workers: int = Field(100, description="provisioner worker threads; external-provisioner's default")
    restore_lock: bool = Field(True, description="restores of one snapshot are serialised; ceph-csi#6354")
    restore_s: float = Field(
        0.4, description="a restore holding the lock; 150 a minute, derived from 6,000 in 40 min"
    )
    restore_spread: float = Field(0.1, description="log spread of that; assumption")
    unlocked_s: float = Field(0.3, description="the rest of a restore, in parallel; assumption")
    retry_first_s: float = Field(1.0, description="first retry of an Aborted restore; external-provisioner")
    retry_max_s: float = Field(300.0, description="longest retry delay; external-provisioner")
    calls: int = Field(
        3, description="API calls per volume: PV and two Events; derived from ceph-csi#6516, 100/min at QPS 5"
    )
    snapshot_s: float = Field(2.5, description="making a VolumeSnapshot ready; assumption")
    delete_s: float = Field(0.15, description="moving an image to trash; assumption")
    delete_workers: int = Field(10, description="images moved to trash at once; assumption")
    bind_s: float = Field(0.01, description="binder's work per claim; assumption")


class Scheduling(Part):
    """kube-scheduler."""

    pod_s: float = Field(0.003, description="one scheduling cycle; assumption")


class Attach(Part):
    """Volume attachment: attach/detach controller and external-attacher."""

    workers: int = Field(10, description="external-attacher worker threads; its default")
    attach_s: float = Field(
        2.5,
        description="one attachment; assumption: with it 1,600 VMs stay below the overload (1,060 at most)",
    )
    overload: bool = Field(True, description="the regime of kubernetes#84169 exists")
    overload_above: int = Field(
        1300, description="attachments in progress at which it slows down; kubernetes#84169"
    )
    overload_below: int = Field(
        500, description="attachments in progress at which it recovers; kubernetes#84169"
    )
    overload_factor: float = Field(
        1.6,
        description="how many times slower it is meanwhile; assumption, makes t(3,200)/t(1,600) about 2.6",
    )
    detach_s: float = Field(0.5, description="one detachment; assumption")


class Kubelet(Part):
    """The node: sandbox, volumes, container start."""

    parallel: int = Field(10, description="pods of a node that start at once; assumption")
    start_s: float = Field(
        4.0, description="a virt-launcher pod's start with its volumes attached; assumption"
    )
    start_spread: float = Field(0.15, description="log spread of that; assumption")
    stop_s: float = Field(1.0, description="a pod's end after its containers'; assumption")


class Guest(Part):
    """What happens in a VM from its domain's start."""

    boot_work_s: float = Field(14.0, description="CPU work from firmware to sshd, one core; assumption")
    boot_spread: float = Field(0.12, description="log spread of that; assumption")
    first_boot_work_s: float = Field(9.0, description="cloud-init, host keys, growpart, once; assumption")
    banner_after_s: float = Field(0.15, description="port open to banner; measured in real guests")
    command_after_s: float = Field(0.6, description="banner to first answered command; assumption")
    copy_up_mib: float = Field(
        396, description="written by a clone's first boot, MiB; pvc-vs-snapshot-clone (2024)"
    )
    read_mib: float = Field(180, description="read by a boot, MiB; assumption")
    disk_gib_per_s: float = Field(
        10.0, description="what the storage gives all boots together, GiB/s; reference study's cap"
    )


class Probing(Part):
    """The observer's own prober, as a model of the real one."""

    interval_s: float = Field(
        0.1, description="between two attempts at one guest; DESIGN: error bound under 250 ms"
    )


class Description(Part):
    """A whole cluster."""

    name: str = "study"
    source: str = Field("", description="where the figures come from, one line")
    kubernetes: str = "v1.31.6"
    kubevirt: str = "v1.6.2"
    cdi: str = "v1.63.1"
    storage_class: str = "ocs-external-storagecluster-ceph-rbd"
    snapshot_class: str = "ocs-external-storagecluster-rbdplugin-snapclass"
    requests_per_s: float = Field(
        17.0,
        gt=0,
        description="VMIs asked for in a lab without stages; assumption (kubevirt#7879 saw up to 17)",
    )
    limits_on: bool = Field(True, description="client rate limits exist; off: every bucket is unlimited")
    nodes: Nodes = Nodes()
    api: Api = Api()
    rates: Rates = Rates()
    virt: Virt = Virt()
    cdi_clone: Cdi = Cdi()
    csi: Csi = Csi()
    scheduling: Scheduling = Scheduling()
    attach: Attach = Attach()
    kubelet: Kubelet = Kubelet()
    guest: Guest = Guest()
    probing: Probing = Probing()

    @property
    def provisioner(self) -> str:
        """The CSI driver's name."""
        return "openshift-storage.rbd.csi.ceph.com"


def load_description(name: str) -> Description:
    """Read a preset by name or a cluster description by path (`.toml`).

    Raises:
        ClusterError: no such preset or file, TOML syntax, an unknown key or a wrong value.
    """
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        presets = ", ".join(sorted(p.stem for p in PRESETS.glob("*.toml")))
        raise ClusterError(f"cluster virtual:{name}: no such preset or file; presets are {presets}")
    try:
        return described(tomllib.loads(path.read_text(encoding="utf-8")), f"cluster virtual:{name}")
    except tomllib.TOMLDecodeError as error:
        raise ClusterError(f"cluster {path}: {error}") from error


def described(values: dict[str, Any], where: str) -> Description:
    """Check a description's values; ClusterError names the first key that is wrong."""
    try:
        return Description.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ClusterError(f"{where}: {key}: {first['msg'].lower()}") from error
