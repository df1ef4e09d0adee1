"""PURE. How long a run takes and how much it needs, before anything is touched.

Times are known for a virtual cluster only, because its description says what each step costs; they are
the sums of the slowest queues, right to about a third. For every other cluster they are None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.cluster.virtual.ceph_clients import fill_bytes_per_s
from infra.cluster.virtual.description import Description
from tasks.analysis.wording import human_duration
from tasks.io_plan import dataset_bytes
from tasks.knobs import catalogue
from tasks.latency_plan import VMS
from tasks.profile import Batches, Profile

GIB_PER_TIB = 1024
ROLLS = "machine-config-pool"
COPIES = 3
"""Replicas that Ceph keeps of a block pool by default."""
DEPLOY_CALLS = {"cdi": 13, "controller_manager": 6, "virt_controller": 4}
BOOT_CALLS = {"virt_controller": 11, "attacher": 1, "controller_manager": 1, "scheduler": 1}
"""Rate-limited calls of each client per VM; counted on the virtual cluster."""


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage of the plan: what it measures and creates, about how long it takes (None: not known)."""

    stage: str
    what: str
    creates: str
    about_s: float | None


@dataclass(frozen=True, slots=True)
class Needs:
    """What the largest batch asks of a cluster; GiB are provisioned, most of them never written."""

    vms: int
    cores: int
    memory_gib: float
    disk_gib: float
    raw_gib: float


def planned_stages(profile: Profile, cluster: Description | None) -> list[PlannedStage]:
    """What each stage of the profile does, in order."""
    makers = {
        "tuning": _tuning,
        "golden-image": _golden_image,
        "deploy": _deploy,
        "boot": _boot,
        "io": _io,
        "latency": _latency,
    }
    return [makers[stage](profile, cluster) for stage in profile.stages if stage in makers]


def needs(profile: Profile) -> Needs:
    """The largest batch of the profile's stages: all its VMs at once."""
    vms = largest(profile)
    disk_gib = float(vms * profile.vm.disk_gib + profile.golden_image.size_gib)
    return Needs(vms, vms * profile.vm.cores, vms * profile.vm.memory_gib, disk_gib, disk_gib * COPIES)


def largest(profile: Profile) -> int:
    """VMs of the largest batch among the stages that are asked for."""
    sections = {"deploy": profile.deploy, "boot": profile.boot}
    return max(
        (max(section.batches) for name, section in sections.items() if name in profile.stages), default=0
    )


def _tuning(profile: Profile, cluster: Description | None) -> PlannedStage:
    """Nodes reboot for a kubelet's or kernel's setting that differs: how many differ is known by looking."""
    knobs, platform = profile.tuning.knobs, cluster.openshift if cluster else None
    rolls = any((target := catalogue()[name].target) and target.rollout == ROLLS for name in knobs)
    about_s = None
    if cluster and platform:
        batches = cluster.nodes.workers / platform.max_unavailable
        said = str(knobs.get("pool-max-unavailable", ""))
        if said.endswith("%") and said[:-1].isdecimal():
            batches = 100 / max(1, int(said[:-1]))
        tuned = cluster.nodes.max_pods == knobs.get("kubelet-max-pods", cluster.nodes.max_pods)
        tuned &= cluster.nodes.status_max_images == knobs.get("kubelet-node-status-max-images", -1)
        about_s = platform.reconcile_s + (batches * platform.reboot_s if rolls and not tuned else 0.0)
    mode = profile.tuning.mode or "apply on the virtual cluster, audit elsewhere"
    return PlannedStage(
        "tuning", f"{_count(len(knobs), 'setting')}; {mode}", "settings, until reverted", about_s
    )


def _golden_image(profile: Profile, cluster: Description | None) -> PlannedStage:
    image = profile.golden_image
    about_s = cluster.cdi_clone.import_s + image.sources * cluster.csi.snapshot_s if cluster else None
    what = f"{_count(image.sources, 'source')}, {image.size_gib} GiB"
    return PlannedStage("golden image", what, f"1 disk, {_count(image.sources, 'snapshot')}", about_s)


def _deploy(profile: Profile, cluster: Description | None) -> PlannedStage:
    section, sizes = profile.deploy, _all(profile.deploy)
    about_s = None
    if cluster:
        sources = profile.golden_image.sources
        queued_s = sum(deploy_s(n, sources, cluster) + delete_s(n, cluster) for n in sizes)
        about_s = max(queued_s, _paced_s(section))
    return PlannedStage("deploy", _sizes(section), f"{sum(sizes):,} VMs", about_s)


def _boot(profile: Profile, cluster: Description | None) -> PlannedStage:
    section, n = profile.boot, max(profile.boot.batches)
    about_s = None
    if cluster:
        storms_s = sum(boot_s(size, cluster) for size in [*_all(section), *([n] if section.prime else [])])
        about_s = deploy_s(n, profile.golden_image.sources, cluster) + max(storms_s, _paced_s(section))
    return PlannedStage("boot", _sizes(section), f"{n:,} VMs", about_s)


def _io(profile: Profile, cluster: Description | None) -> PlannedStage:
    """VMs are made once and stay; every cell is a baseline and a load, each with its pause, lead and ramp."""
    io = profile.io
    nodes = io.nodes or (cluster.nodes.workers if cluster else None)
    cells = len(io.block_kib) * len(io.patterns)
    sizes = " ".join(f"{count * (nodes or 1):,}" for count in io.vms_per_node)
    what = f"{sizes} VMs{'' if nodes else ' per node'}, {_count(cells, 'cell')} each"
    vms = max(io.vms_per_node) * (nodes or 1)
    tib = vms * dataset_bytes(io) / 2**40
    creates = f"{vms:,} VMs{'' if nodes else ' per node'}, {tib:,.1f} TiB of data"
    about_s = None
    if cluster:
        phases_s = 2 * (io.pause_s + io.lead_s) + io.baseline_s + io.ramp_s + io.run_s
        cells_s = len(io.vms_per_node) * io.repeats * cells * phases_s
        filled_s = vms * dataset_bytes(io) / fill_bytes_per_s(cluster.ceph)
        making_s = deploy_s(vms, profile.golden_image.sources, cluster) + delete_s(vms, cluster)
        about_s = cells_s + filled_s + making_s + len(io.vms_per_node) * io.settle_s
    return PlannedStage("io", what, creates, about_s)


def _latency(profile: Profile, cluster: Description | None) -> PlannedStage:
    section = profile.latency
    lengths = [(tool, section.length_s(tool)) for tool in section.tools]
    what = ", ".join(f"{tool} {human_duration(length_s)}" for tool, length_s in lengths)
    segments = sum(section.segments(tool) for tool in section.tools)
    about_s = None
    if cluster:
        # a tool's two VMs are made, booted and deleted anew
        around_s = deploy_s(VMS, 1, cluster) + boot_s(VMS, cluster) + delete_s(VMS, cluster)
        about_s = sum(length_s + around_s for _, length_s in lengths)
    return PlannedStage("latency", f"{what}, in {_count(segments, 'segment')}", f"{VMS} VMs", about_s)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _all(section: Batches) -> list[int]:
    return list(section.batches) * section.repeats


def _paced_s(section: Batches) -> float:
    return sum(_all(section)) / section.rate_per_s if section.rate_per_s else 0.0


def _sizes(section: Batches) -> str:
    sizes = " ".join(f"{size:,}" for size in section.batches)
    return f"{sizes} VMs" + (f", {section.repeats} times" if section.repeats > 1 else "")


def deploy_queues_s(vms: int, sources: int, cluster: Description) -> dict[str, float]:
    """What `vms` clones queue for, and how long each queue is by itself, seconds."""
    csi = cluster.csi
    at_once = min(sources, vms) if csi.restore_lock else csi.workers
    restores = "restores of one snapshot" if at_once == 1 else f"restores, {at_once:,} at a time"
    calls = {"provisioner": csi.calls, **DEPLOY_CALLS}
    return {restores: vms * csi.restore_s / at_once, **_calls_s(vms, calls, cluster)}


def deploy_s(vms: int, sources: int, cluster: Description) -> float:
    """Seconds until `vms` clones are bound: the longest queue, and what nobody waits for."""
    return cluster.csi.unlocked_s + max(deploy_queues_s(vms, sources, cluster).values())


def _calls_s(vms: int, calls: Mapping[str, float], cluster: Description) -> dict[str, float]:
    """Seconds that each client needs for its calls under its own rate limit."""
    rates = {name: getattr(cluster.rates, name) for name in calls}
    return {
        f"QPS {rate.qps:g} of {name.replace('_', '-')}": max(0.0, vms * calls[name] - rate.burst) / rate.qps
        for name, rate in rates.items()
        if cluster.limits_on and rate.qps
    }


def delete_s(vms: int, cluster: Description) -> float:
    """Seconds until `vms` VMs with their disks are gone."""
    return vms * cluster.csi.delete_s / cluster.csi.delete_workers + cluster.csi.delete_s


def boot_queues_s(vms: int, cluster: Description) -> dict[str, float]:
    """What `vms` started VMs queue for, and how long each queue is by itself, seconds."""
    attach, guest, nodes = cluster.attach, cluster.guest, cluster.nodes
    slow = attach.overload_factor if attach.overload and vms > attach.overload_above else 1.0
    moved_gib = vms * (guest.copy_up_mib + guest.read_mib) / 1024
    waves = -(-vms // (nodes.workers * cluster.kubelet.parallel))
    return {
        "attaching volumes": vms * attach.attach_s * slow / attach.workers,
        "the storage's bandwidth": moved_gib / guest.disk_gib_per_s,
        "boot work on the nodes' CPUs": guest.boot_work_s * vms / (nodes.workers * nodes.cpu),
        "pods starting on a node": waves * cluster.kubelet.start_s,
        **_calls_s(vms, BOOT_CALLS, cluster),
    }


def storm_s(vms: int, cluster: Description) -> float:
    """Seconds until `vms` started VMs answer: the longest queue, and what one VM alone takes."""
    guest = cluster.guest
    alone = cluster.kubelet.start_s + cluster.virt.domain_start_s + guest.boot_work_s + guest.command_after_s
    return max(boot_queues_s(vms, cluster).values()) + alone


def boot_s(vms: int, cluster: Description) -> float:
    """Seconds until `vms` started VMs answer and are halted again."""
    return storm_s(vms, cluster) + vms * cluster.attach.detach_s / cluster.attach.workers


def longest(queues_s: Mapping[str, float]) -> str:
    """The queue that everything else waits for."""
    return max(queues_s, key=lambda name: queues_s[name])


def total_s(stages: Sequence[PlannedStage]) -> float | None:
    """The sum of the stages; None when one is not known."""
    known = [stage.about_s for stage in stages if stage.about_s is not None]
    return sum(known) if len(known) == len(stages) else None
