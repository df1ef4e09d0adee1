"""What a virtual cluster is: every constant with its unit, and its source or the word assumption.

A preset (`deployments/clusters/*.toml`) overrides what it knows; published figures come from
different clusters, so one set of constants cannot meet them all. Sources are the tags of
docs/concepts/virtual-cluster.md: reference study, kubevirt#N, ceph-csi#N and so on; a description
reads `what, unit; source`.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from infra.cluster.virtual.openshift import OpenShift, Untuned
from infra.cluster.virtual.own import OwnCluster, spread_out
from infra.cluster.virtual.part import Part
from infra.cluster.virtual.part import Rate as Rate
from infra.cluster.virtual.realtime import Latency
from infra.cluster.virtual.storage import Ceph
from infra.errors import ProfileError
from infra.explain import syntax, what_is_wrong

PRESETS = Path(__file__).resolve().parents[3] / "deployments" / "clusters"


class Nodes(Part):
    """The workers."""

    workers: int = Field(129, ge=1, description="schedulable workers; reference study")
    cpu: int = Field(112, ge=1, description="CPUs of a worker; assumption (a neighbour study's R650, 2x28x2)")
    memory_gib: int = Field(512, ge=1, description="memory of a worker, GiB; assumption (same neighbour)")
    max_pods: int = Field(500, ge=1, description="kubelet maxPods, pods; reference implementation guide")
    kvm_devices: int = Field(
        1000, description="devices.kubevirt.io/kvm of a node; KubeVirt (virt-handler's default)"
    )
    status_max_images: int = Field(
        -1,
        ge=-1,
        description="nodeStatusMaxImages, images, -1 is no limit; reference study (kubelet's default: 50)",
    )
    images: int = Field(90, description="images on a node; assumption")
    image_gib: float = Field(0.55, description="size of the virt-launcher image, GiB; assumption")
    background_cpu: float = Field(1.5, description="CPUs requested by other pods, mean of a node; assumption")
    background_spread: float = Field(0.5, description="spread of that between nodes, share of it; assumption")
    cpu_allocation_ratio: int = Field(10, ge=1, description="vCPUs per requested CPU; KubeVirt")
    launcher_overhead_gib: float = Field(0.25, description="memory that virt-launcher adds, GiB; assumption")
    realtime: int = Field(
        1,
        ge=0,
        description="tainted real-time workers besides the others, nodes; assumption (latency study: one)",
    )


class Api(Part):
    """The API server, etcd behind it."""

    latency_s: float = Field(
        0.006, description="a call's round trip without queueing, seconds; assumption (testbed: 4 to 12 ms)"
    )
    service_s: float = Field(
        0.004, description="a write's time in an API worker, seconds; measured on a testbed"
    )
    workers: int = Field(
        48, ge=1, description="calls served at once by three servers; assumption (16 cores each)"
    )
    webhook_s: float = Field(0.02, description="added to a create that webhooks look at, seconds; assumption")
    watch_lag_s: float = Field(
        0.02, description="change to watch event, seconds; measured on a testbed (13 to 21 ms)"
    )
    history: int = Field(2000, ge=10, description="changes kept per kind for watches that resume; assumption")
    normal_events: bool = Field(
        False,
        description="whether Normal Events are stored, not only charged for; assumption (nothing reads them)",
    )


class Rates(Part):
    """Client rate limits per component; per node for virt-handler and kubelet, per replica for virt-api."""

    virt_api: Rate = Field(
        Rate(qps=100, burst=200), description="of one replica; HCO's annotation, reference study"
    )
    virt_controller: Rate = Field(
        Rate(qps=100, burst=200), description="of all its queues; HCO's annotation, reference study"
    )
    virt_handler: Rate = Field(
        Rate(qps=100, burst=200), description="of one node; HCO's annotation, reference study"
    )
    cdi: Rate = Field(
        Rate(qps=200, burst=400), description="of all CDI controllers; assumption (cdi-apiserver's)"
    )
    provisioner: Rate = Field(
        Rate(qps=50, burst=100),
        description="of external-provisioner; assumption (default: 5/10, less than 150 volumes a minute)",
    )
    attacher: Rate = Field(
        Rate(qps=50, burst=100),
        description="of external-attacher; assumption (raised with the provisioner's)",
    )
    scheduler: Rate = Field(
        Rate(qps=50, burst=100), description="of all its threads; kube-scheduler's default"
    )
    controller_manager: Rate = Field(
        Rate(qps=150, burst=200),
        description="of kube-controller-manager; assumption (OpenShift's, not checked)",
    )
    kubelet: Rate = Field(Rate(qps=100, burst=200), description="of one node; reference implementation guide")


class Virt(Part):
    """virt-api, virt-controller and virt-handler."""

    vm_workers: int = Field(3, ge=1, description="threads of the VM queue; KubeVirt 1.6")
    vmi_workers: int = Field(10, ge=1, description="threads of the VMI queue; KubeVirt 1.6")
    api_replicas: int = Field(13, ge=1, description="replicas of virt-api, one per ten nodes; KubeVirt 1.6")
    vm_reconcile_s: float = Field(0.004, description="CPU of one VM reconcile, seconds; assumption")
    vmi_reconcile_s: float = Field(
        0.0, description="CPU of one VMI reconcile, seconds; assumption (its calls dominate)"
    )
    disruption_budgets: bool = Field(
        False, description="whether a VMI gets a PodDisruptionBudget; kubevirt#13764"
    )
    domain_start_s: float = Field(
        1.2, description="virt-handler: hand-off to running domain, seconds; assumption"
    )
    domain_spread: float = Field(
        0.15, description="spread of that, standard deviation of its log; assumption"
    )
    domain_stop_s: float = Field(0.8, description="virt-handler: stop with grace 0, seconds; assumption")


class Cdi(Part):
    """The clone path."""

    workers: int = Field(3, ge=1, description="MaxConcurrentReconciles of each controller; CDI")
    reconcile_s: float = Field(
        0.0, description="CPU of one reconcile, seconds; assumption (its calls dominate)"
    )
    import_s: float = Field(95.0, description="import of the golden image, seconds; assumption")
    copy_mib_per_s: float = Field(
        200.0, gt=0, description="a clone copied through a pod, MiB per second; assumption"
    )


class Csi(Part):
    """Provisioner, snapshotter and binder."""

    workers: int = Field(100, ge=1, description="provisioner worker threads; external-provisioner's default")
    restore_lock: bool = Field(
        True, description="whether restores of one snapshot are serialised; ceph-csi#6354"
    )
    restore_s: float = Field(
        0.4,
        description="a restore's hold of the lock, seconds; derived from the study (6,000 in 40 min)",
    )
    restore_spread: float = Field(
        0.1, description="spread of that, standard deviation of its log; assumption"
    )
    unlocked_s: float = Field(0.3, description="the rest of a restore, in parallel, seconds; assumption")
    retry_first_s: float = Field(
        1.0, gt=0, description="first retry of an Aborted restore, seconds; external-provisioner's default"
    )
    retry_max_s: float = Field(
        300.0, gt=0, description="longest retry delay, seconds; external-provisioner's default"
    )
    calls: int = Field(
        3,
        ge=2,
        description="API calls per volume, PV and Events; derived from ceph-csi#6516 (100 a minute at QPS 5)",
    )
    snapshot_s: float = Field(2.5, description="making a VolumeSnapshot ready, seconds; assumption")
    delete_s: float = Field(0.15, description="moving an image to trash, seconds; assumption")
    delete_workers: int = Field(10, ge=1, description="images moved to trash at once; assumption")
    bind_s: float = Field(0.01, description="binder's work per claim, seconds; assumption")


class Scheduling(Part):
    """kube-scheduler."""

    pod_s: float = Field(0.003, description="one scheduling cycle, seconds; assumption")


class Attach(Part):
    """Volume attachment: attach/detach controller and external-attacher."""

    workers: int = Field(
        10, ge=1, description="external-attacher worker threads; external-attacher's default"
    )
    attach_s: float = Field(
        2.5,
        description="one attachment, seconds; assumption (1,600 VMs stay below the overload: 1,060)",
    )
    overload: bool = Field(
        True, description="whether the regime of too many attachments exists; kubernetes#84169"
    )
    overload_above: int = Field(
        1300, description="attachments in progress at which it slows; kubernetes#84169"
    )
    overload_below: int = Field(
        500, description="attachments in progress at which it recovers; kubernetes#84169"
    )
    overload_factor: float = Field(
        1.6,
        gt=0,
        description="how many times slower it is then; assumption (t(3,200)/t(1,600) is 2.6)",
    )
    detach_s: float = Field(0.5, description="one detachment, seconds; assumption")


class Kubelet(Part):
    """The node: sandbox, volumes, container start."""

    parallel: int = Field(10, ge=1, description="pods of a node that start at once; assumption")
    start_s: float = Field(4.0, description="a launcher pod's start, volumes attached, seconds; assumption")
    start_spread: float = Field(0.15, description="spread of that, standard deviation of its log; assumption")
    stop_s: float = Field(1.0, description="a pod's end after its containers', seconds; assumption")


class Guest(Part):
    """What happens in a VM from its domain's start."""

    boot_work_s: float = Field(
        14.0, description="work from firmware to sshd, seconds of one core; assumption"
    )
    boot_spread: float = Field(0.12, description="spread of that, standard deviation of its log; assumption")
    first_boot_work_s: float = Field(
        9.0, description="cloud-init, host keys, growpart, once, seconds of one core; assumption"
    )
    banner_after_s: float = Field(0.15, description="port open to banner, seconds; measured in real guests")
    command_after_s: float = Field(0.6, description="banner to first answered command, seconds; assumption")
    copy_up_mib: float = Field(
        396, description="written by a clone's first boot, MiB; pvc-vs-snapshot-clone comparison of 2024"
    )
    read_mib: float = Field(180, description="read by a boot, MiB; assumption")
    disk_gib_per_s: float = Field(
        10.0,
        gt=0,
        description="what the storage gives all boots together, GiB per second; reference study (its cap)",
    )


class Probing(Part):
    """The observer's own prober, as a model of the real one."""

    interval_s: float = Field(
        0.1,
        gt=0,
        description="between two attempts at one guest, seconds; assumption (error bound under 250 ms)",
    )


class Description(Part):
    """A whole cluster."""

    name: str = Field("study", description="name of the preset, shown in reports")
    source: str = Field("", description="where the figures come from, one line")
    kubernetes: str = Field(
        "v1.31.6", description="version that the cluster says; assumption (OpenShift 4.18)"
    )
    kubevirt: str = Field("v1.6.2", description="version that the cluster says; the one whose CRDs tests use")
    cdi: str = Field("v1.63.1", description="version that the cluster says; the one whose CRDs tests use")
    storage_class: str = Field(
        "ocs-external-storagecluster-ceph-rbd",
        description="name of the storage class; reference implementation guide",
    )
    snapshot_class: str = Field(
        "ocs-external-storagecluster-rbdplugin-snapclass",
        description="name of the snapshot class; reference implementation guide",
    )
    assumptions: tuple[str, ...] = Field(
        (), description="keys of this file that nobody measured; `plan --sensitivity` varies them, too"
    )
    golden_sources: int = Field(
        0, ge=0, le=64, description="golden snapshots made by a run, 0 is as its profile says; assumption"
    )
    requests_per_s: float = Field(
        17.0,
        gt=0,
        description="VMIs a lab without stages asks for, per second; assumption (kubevirt#7879: up to 17)",
    )
    limits_on: bool = Field(
        True, description="whether client rate limits exist; off: every bucket is unlimited"
    )
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
    ceph: Ceph = Ceph()
    latency: Latency = Latency()
    probing: Probing = Probing()
    openshift: OpenShift = OpenShift()
    untuned: Untuned = Untuned()

    @property
    def provisioner(self) -> str:
        """The CSI driver's name."""
        return "openshift-storage.rbd.csi.ceph.com"


class _File(Description):
    """What a file may say: the short table, and every constant."""

    cluster: OwnCluster = OwnCluster()


def load_description(name: str) -> Description:
    """Read a preset by name or a cluster description by path (`.toml`).

    Raises:
        ProfileError: no such preset or file, TOML syntax, an unknown key or a wrong value.
    """
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    where = f"cluster virtual:{name}"
    if not path.is_file():
        if Path(name).is_file():
            raise ProfileError(
                f"{where}: the name of a file that describes a cluster ends with .toml; rename it"
            )
        presets = ", ".join(sorted(p.stem for p in PRESETS.glob("*.toml")))
        raise ProfileError(f"{where}: no such preset or file; presets are {presets}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{where}: is not text in UTF-8 (byte {error.start})") from error
    try:
        return described(tomllib.loads(text), where)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{where}: {syntax(str(error), text)}") from error


def described(values: dict[str, Any], where: str) -> Description:
    """Check a description's values; ProfileError names the first key that is wrong."""
    try:
        file = _File.model_validate_json(json.dumps(values, default=str), strict=True)
        return Description.model_validate(spread_out(file.cluster, values, where, Description))
    except ValidationError as error:
        raise ProfileError(f"{where}: {what_is_wrong(error, _File)}") from error
