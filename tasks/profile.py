"""PURE. What to run: a profile is one TOML file, checked whole before anything is touched.

Precedence: a model's default < the profile's file < `--set a.b=value`. Units are in the names;
`None` (leave the key out) means unlimited where a field says so.
"""

import hashlib
import json
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from infra.errors import ProfileError
from infra.explain import unknown_choice
from infra.own_manifest import has_cloud_init, problem, stated
from tasks.knobs import wrong
from tasks.profile_source import Override, explain, merge, read_source, with_manifest
from tasks.thresholds import Brakes, Compare, Limits, Positive, Quiesce, Seconds, Section

__all__ = ["Compare", "Limits", "Positive", "Quiesce", "Seconds", "Section"]

Rate = Annotated[float, Field(ge=1e-6, le=1e6)]
Sizes = tuple[Annotated[int, Field(gt=0, le=1_000_000)], ...]
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
StageName = Literal[
    "preflight", "tuning", "golden-image", "deploy", "boot", "io", "latency", "report", "clean"
]
STAGES: tuple[StageName, ...] = (
    "preflight",
    "tuning",
    "golden-image",
    "deploy",
    "boot",
    "io",
    "latency",
    "report",
    "clean",
)
"""Every stage that this version runs, in the order of a study."""

JUMP = r"^(([^@\s,]+@)?[A-Za-z0-9]([-\w.]*\w)?(:\d{1,5})?)?$"

LatencyTool = Literal["jitterdebugger", "cyclictest", "oslat", "l2reflect"]
STUDY_SIZES: Sizes = (100, 200, 400, 800, 1600, 3200, 6000)


class VirtualMachineShape(Section):
    """The VirtualMachine that every batch is made of."""

    cores: int = Field(1, ge=1, le=64, description="vCPUs of a VM")
    memory_gib: Positive = Field(2.0, description="guest memory of a VM, GiB")
    disk_gib: int = Field(
        21, ge=1, le=1_000_000, description="size of the root disk, GiB; at least the golden image's"
    )
    storage_class: str = Field(
        "ocs-external-storagecluster-ceph-rbd", description="StorageClass of the root disks"
    )
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        "ReadWriteMany", description="of the root disks"
    )
    volume_mode: Literal["Block", "Filesystem"] = Field("Block", description="of the root disks")
    network: str = Field("", description="NetworkAttachmentDefinition of the NIC; left out: the pod network")
    priority_class: str = Field(
        "", description="PriorityClass of the VMs; best a low one, so that others win"
    )
    instance_type: str = Field(
        "",
        pattern=r"^((virtualmachineinstancetype/)?[a-z0-9][-a-z0-9.]*)?$",
        description="cluster-wide instance type, or virtualmachineinstancetype/NAME; left out: none",
    )
    preference: str = Field(
        "",
        pattern=r"^((virtualmachinepreference/)?[a-z0-9][-a-z0-9.]*)?$",
        description="cluster-wide preference, or virtualmachinepreference/NAME; left out: none",
    )
    manifest: dict[str, Any] = Field(
        {}, description="a VirtualMachine of your own, as the path of a YAML file; left out: the study's"
    )

    @model_validator(mode="after")
    def _as_its_manifest_says(self) -> Self:
        if not self.manifest:
            return self
        if said := problem(self.manifest):
            raise ValueError(f"manifest {said}")
        for key, value in stated(self.manifest).items():
            if getattr(self, key) != value:
                raise ValueError(f"{key} is {getattr(self, key)}, the manifest says {value}: leave it out")
        return self


class Guests(Section):
    """How guests of a real cluster are reached; the virtual cluster brings its own."""

    path: Literal["none", "ssh"] = Field("none", description="ssh, or none: boot storms end at Running")
    user: str = Field(
        "root", pattern=r"^[a-z_][-a-z0-9_]*$", description="who logs in; cloud-init gives it the run's key"
    )
    interface: str = Field("", description="VMI interface whose address is used; left out: the first")
    cidr: str = Field("", description="network that cloud-init gives addresses of; left out: VMI status")
    first_address: int = Field(10, ge=1, le=2**24, description="place of VM 0's address in that network")
    gateway: str = Field("", description="default gateway of that network; left out: none")
    nic: str = Field("enp1s0", description="what the guest calls the NIC that gets the address")
    port: int = Field(22, ge=1, le=65535, description="of the guests' sshd")
    jump: str = Field(
        "", pattern=JUMP, description="[user@]host[:port] of a jump host, as ssh knows it; left out: none"
    )
    jump_channels: int = Field(
        250, ge=1, le=10_000, description="guests on one connection to the jump host, at most"
    )
    command_timeout_s: Seconds = Field(60, description="longest wait for a command of our own, seconds")

    @model_validator(mode="after")
    def _a_network(self) -> Self:
        network = ip_network(self.cidr) if self.cidr else None
        if self.gateway and (network is None or ip_address(self.gateway) not in network):
            raise ValueError(f"gateway {self.gateway} is not in cidr {self.cidr!r}")
        return self


class GoldenImage(Section):
    """The disk that all VirtualMachines are cloned from."""

    url: str = Field(
        "docker://quay.example/rhel9:9.2",
        pattern=r"^(docker|https?)://.",
        description="docker:// or https:// address to import",
    )
    sources: int = Field(1, ge=1, le=64, description="snapshots made of it; VM i clones number i mod sources")
    size_gib: int = Field(21, ge=1, le=1_000_000, description="size of the imported disk, GiB")
    snapshot_class: str = Field(
        "ocs-external-storagecluster-rbdplugin-snapclass", description="VolumeSnapshotClass of the sources"
    )
    limit_s: Seconds = Field(3600, description="longest wait for import, snapshots and canary, seconds")


class Batches(Section):
    """Sizes and pace of a measured stage."""

    batches: Sizes = Field(STUDY_SIZES, description="VMs per batch, each larger than the one before")
    repeats: int = Field(1, ge=1, le=100, description="how often every batch is measured")
    order: Literal["up", "down"] = Field("up", description="smallest or largest batch first")
    rate_per_s: Rate | None = Field(None, description="requests per second; left out: all at once")
    limit_s: Seconds = Field(7200, description="a VM not done after this many seconds is a timeout")

    @model_validator(mode="after")
    def _growing(self) -> Self:
        if not self.batches or any(a >= b for a, b in zip(self.batches, self.batches[1:], strict=False)):
            raise ValueError("batches must be one or more positive sizes, each larger than the one before")
        return self


class Boot(Batches):
    """Boot storms."""

    prime: bool = Field(False, description="boot every VM once before the first measured storm")


class Io(Section):
    """Reads and writes of a growing fleet under one total cap."""

    vms_per_node: Sizes = Field((1, 2, 4, 8, 16), description="VMs on every node, one size after the other")
    nodes: int | None = Field(
        None, ge=1, le=100_000, description="nodes that take part, by name; left out: every schedulable one"
    )
    repeats: int = Field(1, ge=1, le=100, description="how often every size is measured")
    block_kib: tuple[Annotated[int, Field(ge=4, le=4096)], ...] = Field(
        (4, 64), min_length=1, description="block sizes, KiB"
    )
    patterns: tuple[Literal["read", "write"], ...] = Field(
        ("read", "write"), min_length=1, description="random reads, random writes"
    )
    cap_gib_per_s: Positive = Field(10.0, description="total of all VMs, GiB/s; split exactly over them")
    run_s: int = Field(300, ge=1, le=1_000_000, description="measured time of a load, seconds")
    ramp_s: int = Field(30, ge=0, le=100_000, description="load before that, not measured, seconds")
    pause_s: Seconds = Field(30, description="pause before every measurement, seconds")
    settle_s: Seconds = Field(120, description="pause after a data set was laid out, seconds")
    lead_s: Seconds = Field(60, description="from the order to start to the start itself, seconds")
    depth: int | None = Field(
        None, ge=1, le=4096, description="requests at once of a VM; left out: rate x expected_latency_ms"
    )
    expected_latency_ms: Positive = Field(2.0, description="latency that the depth is worked out for, ms")
    baseline_s: int = Field(60, ge=1, le=1_000_000, description="measured time of a baseline, seconds")
    baseline_share: float = Field(
        0.005, gt=0, le=0.1, description="share of the cap that all baselines together stay at"
    )
    directories: int = Field(140, ge=1, le=10_000, description="directories of a VM's data set")
    files_per_directory: int = Field(15, ge=1, le=10_000, description="files in each of them")
    file_mib: int = Field(5, ge=1, le=100_000, description="size of each file, MiB")
    keep_vm_histograms: bool = Field(False, description="store the histogram of every VM, not only of cells")
    limit_s: Seconds = Field(7200, description="longest wait for VMs to be up or data sets to be written, s")

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for name in ("vms_per_node", "block_kib", "patterns"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must name one or more values, each once")
        return self


class Latency(Section):
    """Jitter and network latency in real-time VMs; lengths are the study's three and five days."""

    tools: tuple[LatencyTool, ...] = Field(
        ("jitterdebugger", "l2reflect"), description="tools, one after the other"
    )
    jitter_s: Seconds = Field(
        259_200, description="how long jitterdebugger, cyclictest, oslat measure, seconds"
    )
    network_s: Seconds = Field(432_000, description="how long l2reflect measures, seconds")
    segment_s: int = Field(
        21_600, ge=1, le=10_000_000, description="length of a segment, seconds; both lengths are multiples"
    )
    interval_us: int = Field(1000, ge=50, le=1_000_000, description="a timer's interval, microseconds")
    cores: int = Field(4, ge=2, le=64, description="vCPUs of a real-time VM, each a CPU of its own")
    memory_gib: int = Field(
        4, ge=1, le=4096, description="guest memory of a real-time VM, GiB, in huge pages"
    )
    huge_page: Literal["1Gi", "2Mi"] = Field("1Gi", description="size of a huge page")
    cpus: str = Field(
        "2-3", pattern=r"^\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*$", description="isolated vCPUs, measured"
    )
    noise: str = Field(
        "--cpu 2 --vm 1 --vm-bytes 64M --taskset 0-1",
        description="stress-ng beside the tool: its options; empty: none",
    )
    sriov_network: str = Field(
        "default/rt-network", description="NetworkAttachmentDefinition of the second NIC: [namespace/]name"
    )
    host_device: str = Field("", description="passed-through NIC instead: name of the host device")
    pci_address: str = Field("0000:06:00.0", description="the second NIC's PCI address in the guest")
    limit_s: Seconds = Field(3600, description="longest wait for the VMs to answer, seconds")

    def length_s(self, tool: LatencyTool) -> float:
        """How long a tool measures."""
        return self.network_s if tool == "l2reflect" else self.jitter_s

    def segments(self, tool: LatencyTool) -> int:
        """How many segments that is."""
        return round(self.length_s(tool) / self.segment_s)

    @model_validator(mode="after")
    def _whole_segments(self) -> Self:
        for tool in self.tools:
            if self.length_s(tool) != self.segments(tool) * self.segment_s or not self.segments(tool):
                raise ValueError(
                    f"{tool} measures {self.length_s(tool):g} s, which is no multiple of "
                    f"segment_s {self.segment_s}"
                )
        if len(set(self.tools)) < len(self.tools):
            raise ValueError("a tool is named twice")
        return self

    @model_validator(mode="after")
    def _isolated(self) -> Self:
        bounds = [int(number) for part in self.cpus.split(",") for number in part.split("-")]
        if max(bounds) >= self.cores or 0 in bounds:
            raise ValueError(f"cpus {self.cpus}: vCPU 0 is the guest's own, {self.cores - 1} is the last")
        if any(int(a) > int(b) for a, b in (part.split("-") for part in self.cpus.split(",") if "-" in part)):
            raise ValueError(f"cpus {self.cpus}: a range runs backwards")
        return self


class Tuning(Section):
    """What the cluster is set to before it is measured; the catalogue is `deployments/knobs`."""

    mode: Literal["audit", "apply"] | None = Field(
        None, description="audit changes nothing; left out: apply on the virtual cluster, audit elsewhere"
    )
    knobs: dict[str, Any] = Field({}, description="knob to the value that it should have")
    limit_s: Seconds = Field(
        604_800, description="longest wait for a roll-out, seconds; nodes reboot one after the other"
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        said = next((text for name, value in self.knobs.items() if (text := wrong(name, value))), "")
        if said:
            raise ValueError(said)
        return self


class Profile(Section):
    """A whole run: what is made, how many, how fast, and what still counts as valid."""

    name: str = Field(
        "custom", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", description="the profile's own name"
    )
    description: str = Field("", description="one line for people")
    stages: tuple[StageName, ...] = Field(STAGES, description="stages to run, in the order of a study")
    namespace: Namespace = Field("virtscale", description="namespace of the VMs; made by the run if absent")
    golden_namespace: Namespace = Field(
        "virtscale-golden", description="namespace of the golden image; may be that of the VMs"
    )
    background_pods: int = Field(
        0, ge=0, le=1_000_000, description="other pods on the virtual cluster's workers"
    )
    vm: VirtualMachineShape = VirtualMachineShape()
    guests: Guests = Guests()
    golden_image: GoldenImage = GoldenImage()
    tuning: Tuning = Tuning()
    deploy: Batches = Batches()
    boot: Boot = Boot()
    io: Io = Io()
    latency: Latency = Latency()
    delete_limit_s: Seconds = Field(7200, description="longest wait for a batch to be deleted, seconds")
    stop_limit_s: Seconds = Field(3600, description="longest wait for a batch to be halted, seconds")
    quiesce: Quiesce = Quiesce()
    limits: Limits = Limits()
    brakes: Brakes = Brakes()
    compare: Compare = Compare()

    @model_validator(mode="after")
    def _dataset_fits(self) -> Self:
        section = self.io
        gib = section.directories * section.files_per_directory * section.file_mib / 1024
        if "io" in self.stages and gib >= self.vm.disk_gib:
            raise ValueError(
                f"io's data set has {gib:.2f} GiB; it must be smaller than vm.disk_gib {self.vm.disk_gib}"
            )
        return self

    @model_validator(mode="after")
    def _one_cloud_init(self) -> Self:
        if self.guests.path == "ssh" and self.vm.manifest and has_cloud_init(self.vm.manifest):
            raise ValueError(
                "vm.manifest has a cloud-init volume, and guests.path ssh brings one: take it out, or set "
                "guests.path=none"
            )
        return self

    @model_validator(mode="after")
    def _clones_fit(self) -> Self:
        if self.vm.disk_gib < self.golden_image.size_gib:
            raise ValueError(
                f"vm.disk_gib is {self.vm.disk_gib}; a clone is at least as large as its source, "
                f"golden_image.size_gib {self.golden_image.size_gib}"
            )
        return self


def load_profile(name_or_path: str, sets: Sequence[str] = ()) -> Profile:
    """The profile of a built-in name or of a TOML file, with `sets` (`a.b=value`) on top.

    Raises:
        ProfileError: one line: where, which key, what is wrong with it, what to do.
    """
    where, data = read_source(name_or_path)
    overrides = [Override.parse(text, Profile) for text in sets]
    data = with_manifest(where, merge(data, overrides))
    try:
        profile = Profile.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        raise ProfileError(explain(where, error, Profile, overrides)) from None
    return with_stages(profile, profile.stages, f"{where}: stages")


def with_stages(profile: Profile, stages: Sequence[str], where: str = "--stages") -> Profile:
    """The same profile with other stages, each once and in the order of a study.

    Raises:
        ProfileError: no stage at all, or one that this version does not run.
    """
    for stage in stages:
        if stage not in STAGES:
            raise ProfileError(f"{where}: {unknown_choice(stage, STAGES, 'stage')}")
    if not stages:
        raise ProfileError(f"{where}: no stage is named; there are {', '.join(STAGES)}")
    return profile.model_copy(update={"stages": tuple(stage for stage in STAGES if stage in stages)})


def profile_hash(profile: Profile) -> str:
    """SHA-256 of what the profile measures; which of its stages run now, and thresholds, are left out.

    Two runs with equal hashes did the same; a run id is bound to one hash.
    """
    content = profile.model_dump(mode="json", exclude={"stages", "compare", "brakes"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
