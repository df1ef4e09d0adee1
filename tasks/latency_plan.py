"""PURE. What runs in the guests of the latency stage: each tool's command, files and segments."""

from dataclasses import dataclass
from typing import cast, get_args

from infra.errors import ProfileError
from tasks.profile import Latency, LatencyTool

VMS = 2
"""A frame needs two ends; jitter is measured in both at once."""
FOLDER = "/var/lib/virtscale/latency"
RUNNER, COPIER = "/usr/local/bin/virtscale-segments", "/usr/local/bin/virtscale-copies"
"""Our scripts in the guest: one runs a tool once for each segment, one copies a long process's file."""
HISTOGRAM_US = 1000
"""Slots asked of cyclictest: as many as jitterdebugger has."""
OSLAT_BUCKETS = 128
L2_BUCKET_US, L2_BUCKETS = 1, 2000
"""Buckets of 1 us, so that a claim of 65 us is known to 1 us; the last one begins at 2 ms."""
GAP_S = 1.0
"""How long a segment may end after its time before anybody is surprised."""
_PROPERTIES = (
    "Type=exec",
    "RemainAfterExit=yes",
    "KillSignal=SIGINT",
    "TimeoutStopSec=30",
    "LimitMEMLOCK=infinity",
    "OOMScoreAdjust=-900",
    "CPUAffinity=0",
)


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """One tool in the guests: `segments` of `segment_s` seconds on `cpus` of each VM.

    `chained`: our runner starts the tool once for each segment. l2reflect must not be interrupted:
    it is one process, and another unit copies its file at the end of each segment.
    """

    tool: LatencyTool
    segments: int
    segment_s: int
    mask: str
    interval_us: int
    noise: str
    pci_address: str

    @property
    def chained(self) -> bool:
        """Whether a segment is a run of its own."""
        return self.tool != "l2reflect"

    @property
    def cpus(self) -> tuple[int, ...]:
        """The measured CPUs, sorted; of l2reflect the one that handles the frame."""
        found = cpus_of(self.mask)
        return found if self.chained else found[-1:]

    @property
    def folder(self) -> str:
        """Where the guest keeps what the tool wrote."""
        return f"{FOLDER}/{self.tool}"

    @property
    def unit(self) -> str:
        """The systemd unit of the tool."""
        return f"virtscale-{self.tool}"

    @property
    def noise_unit(self) -> str:
        """The systemd unit of the load beside it."""
        return f"virtscale-noise-{self.tool}"

    @property
    def noise_file(self) -> str:
        """What stress-ng writes when it ends."""
        return f"{self.folder}/stress-ng.yaml"

    def result(self, segment: int) -> str:
        """The file with a segment's result."""
        return f"{self.folder}/seg-{segment:05d}{self.suffix}"

    @property
    def histogram(self) -> str:
        """l2reflect's file."""
        return f"{self.folder}/hist.json"

    @property
    def suffix(self) -> str:
        """What comes after a segment's path in the name of its result."""
        return "/results.json" if self.tool == "jitterdebugger" else ".json"

    def start(self, first: int) -> str:
        """The command that starts the tool as a unit, from this segment on."""
        chain = f"{RUNNER} {self.folder} {first} {self.segments} {self.suffix} " if self.chained else ""
        return f"{_as_unit(self.unit)} {chain}{self._command()}"

    def start_copies(self) -> str:
        """The command that starts the copies of a long process's file."""
        times = f"{self.segments} {self.segment_s}"
        return (
            f"{_as_unit(f'{self.unit}-copies')} {COPIER} {self.folder} {times} {self.unit} {self.histogram}"
        )

    def start_noise(self) -> str:
        """The command that starts the load beside it."""
        return f"{_as_unit(self.noise_unit)} stress-ng {self.noise} --metrics --yaml {self.noise_file}"

    def _command(self) -> str:
        seconds, mask, interval = f"{self.segment_s}s", self.mask, self.interval_us
        threads = len(cpus_of(mask))
        match self.tool:
            case "jitterdebugger":
                return f"jitterdebugger -D {seconds} -i {interval} -a {mask} -p 80 -o @"
            case "cyclictest":
                timing = f"-i {interval} -d 0 -h {HISTOGRAM_US} -D {seconds}"
                return f"cyclictest -m -q -p 95 -t {threads} -a {mask} {timing} --json=@.json"
            case "oslat":
                load = f"-w memmove -m 4K -b {OSLAT_BUCKETS} -z"
                return f"oslat -c {mask} -f 1 {load} -D {seconds} --json=@.json"
            case "l2reflect":
                first, *_, last = cpus_of(mask)
                buckets = f"-H {L2_BUCKET_US} -B {L2_BUCKETS} -F {self.histogram} -b 0"
                return (
                    f"l2reflect --lcores 0@{first},1@{last} -n 1 -a {self.pci_address} "
                    f"-- -P 50 -r -l {buckets}"
                )


def _as_unit(name: str) -> str:
    return f"systemd-run --unit={name} " + " ".join(f"--property={each}" for each in _PROPERTIES)


def cpus_of(mask: str) -> tuple[int, ...]:
    """The CPUs of a list such as `2-3,5`, sorted."""
    found: set[int] = set()
    for part in mask.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def tool_named(name: str) -> LatencyTool:
    """The tool of that name.

    Raises:
        ProfileError: there is none.
    """
    for tool in get_args(LatencyTool):
        if tool == name:
            return cast(LatencyTool, tool)
    raise ProfileError(f"latency tool {name}: there is none; tools are {', '.join(get_args(LatencyTool))}")


def plan_of(section: Latency, tool: LatencyTool) -> ToolPlan:
    """What the profile asks of a tool."""
    return ToolPlan(
        tool=tool,
        segments=section.segments(tool),
        segment_s=section.segment_s,
        mask=section.cpus,
        interval_us=section.interval_us,
        noise=section.noise,
        pci_address=section.pci_address,
    )
