"""What people fill in to start a flow from Prefect: one model per flow, its fields the run form of the UI.

Limits are in the fields, so that the server refuses a wrong value before a process starts. What is left
empty is the profile's. A form becomes the request that `virtscale run` makes of its options.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from flows.cli.options import resolved_profile
from infra.manifests import SLOTS
from tasks.profile import LatencyTool, Section, StageName
from tasks.run import RunRequest

Change = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_.-]*=.*$", max_length=500)]
Size = Annotated[int, Field(gt=0, le=1_000_000)]
RunId = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?)?$")]
PREPARED: tuple[StageName, ...] = ("preflight", "golden-image")
APPROVED = "Let tuning reboot nodes or move data without asking"
APPROVAL = "Hours that tuning waits, suspended, for a decision; then the run fails"
CLOSED: tuple[StageName, ...] = ("report", "clean")


class Form(Section):
    """What every run is asked: what, where, and under which name."""

    profile: str = Field(
        "study",
        title="Profile",
        min_length=1,
        max_length=500,
        description="Name of a built-in profile (study, tuned, small, smoke) or path of a TOML file",
    )
    changes: tuple[Change, ...] = Field(
        (), title="Changes", max_length=100, description="Keys of the profile to change: boot.limit_s=600"
    )
    cluster: str = Field(
        "virtual:study",
        title="Cluster",
        min_length=1,
        max_length=500,
        description="virtual, virtual:PRESET, virtual:FILE.toml or a kubeconfig context",
    )
    store: str = Field(
        "results",
        title="Store",
        min_length=1,
        max_length=500,
        description="Folder of the results, or s3://BUCKET/PREFIX",
    )
    run_id: RunId = Field(
        "", title="Run", description="Name of the run; an unfinished one goes on. Empty: the flow run's id"
    )
    seed: int = Field(1, title="Seed", ge=0, lt=2**32, description="Seed of every random choice")
    faults: str = Field(
        "", title="Faults", max_length=500, description="File of faults for the virtual cluster; empty: none"
    )
    keep: bool = Field(False, title="Keep", description="Leave the run's objects on the cluster")
    shards: int = Field(
        0,
        title="Shards",
        ge=0,
        le=SLOTS,
        description="Processes that share each batch, on Dask; 0: one process drives all of it",
    )
    dask: str = Field(
        "",
        title="Dask",
        max_length=500,
        description="Address of a Dask scheduler for the shards; empty: a cluster on the worker's machine",
    )

    def stages_asked(self) -> tuple[StageName, ...]:
        """The stages that the flow runs; none: the profile's own."""
        return ()

    def sets(self) -> Iterator[tuple[str, Any]]:
        """Keys of the profile that the form sets, with their values; None and empty leave the profile's."""
        yield from ()

    def request(self) -> RunRequest:
        """The run that the form stands for.

        Raises:
            ProfileError: a change names no key, or values do not fit together.
        """
        own = [f"{key}={_toml(value)}" for key, value in self.sets() if value not in (None, (), "")]
        profile = resolved_profile(
            self.profile, [*own, *self.changes], ",".join(self.stages_asked()) or None, self.cluster
        )
        names = ("run_id", "cluster", "store", "seed", "faults", "keep", "shards", "dask")
        return RunRequest(profile=profile, **{name: getattr(self, name) for name in names})


class StudyForm(Form):
    """The whole study, or some of its stages."""

    stages: tuple[StageName, ...] = Field(
        (), title="Stages", description="Only these; empty: those of the profile"
    )
    approved: bool = Field(False, title="Approved", description=APPROVED)
    approval_h: int = Field(24, title="Approval", ge=1, le=720, description=APPROVAL)

    def stages_asked(self) -> tuple[StageName, ...]:
        """Those that were picked."""
        return self.stages


class TuningForm(Form):
    """Look at a cluster's knobs, or set them."""

    mode: Literal["audit", "apply"] = Field(
        "audit", title="Mode", description="audit: only look; apply: set what differs"
    )
    approved: bool = Field(False, title="Approved", description=APPROVED)
    approval_h: int = Field(24, title="Approval", ge=1, le=720, description=APPROVAL)

    def stages_asked(self) -> tuple[StageName, ...]:
        """Nothing is measured."""
        return ("preflight", "tuning")

    def sets(self) -> Iterator[tuple[str, Any]]:
        """The mode."""
        yield "tuning.mode", self.mode


class GoldenImageForm(Form):
    """Import a golden image, snapshot it and clone it once."""

    url: str = Field(
        "",
        title="Image",
        pattern=r"^((docker|https?)://.+)?$",
        max_length=2000,
        description="docker:// or https:// address to import; empty: the profile's",
    )
    sources: int | None = Field(
        None, title="Sources", ge=1, le=64, description="Snapshots to make; empty: the profile's"
    )

    def stages_asked(self) -> tuple[StageName, ...]:
        """The image alone; Keep leaves it on the cluster."""
        return (*PREPARED, "clean")

    def sets(self) -> Iterator[tuple[str, Any]]:
        """Where the image is and how often it is snapshot."""
        yield "golden_image.url", self.url
        yield "golden_image.sources", self.sources


class BatchesForm(Form):
    """Sizes and pace of a measured stage."""

    batches: tuple[Size, ...] = Field(
        (),
        title="Batches",
        max_length=100,
        description="VMs per batch, each larger than the one before; empty: the profile's",
    )
    repeats: int | None = Field(
        None, title="Repeats", ge=1, le=100, description="How often every batch is measured"
    )
    rate_per_s: float | None = Field(
        None, title="Rate", ge=1e-6, le=1e6, description="Requests per second; empty: the profile's"
    )
    limit_s: float | None = Field(
        None, title="Limit", gt=0, le=1e9, description="A VM not done after so many seconds is a timeout"
    )

    def _section(self, stage: str) -> Iterator[tuple[str, Any]]:
        for name in ("batches", "repeats", "rate_per_s", "limit_s"):
            yield f"{stage}.{name}", getattr(self, name)


class DeployForm(BatchesForm):
    """Create batches of VirtualMachines with their disks, and delete them again."""

    def stages_asked(self) -> tuple[StageName, ...]:
        """Deploys with what they need."""
        return (*PREPARED, "deploy", *CLOSED)

    def sets(self) -> Iterator[tuple[str, Any]]:
        """The section `deploy`."""
        yield from self._section("deploy")


class BootStormForm(BatchesForm):
    """Start batches of VirtualMachines at once, and stop them again."""

    prime: bool = Field(False, title="Prime", description="Boot every VM once before the first storm")

    def stages_asked(self) -> tuple[StageName, ...]:
        """Boot storms with what they need."""
        return (*PREPARED, "boot", *CLOSED)

    def sets(self) -> Iterator[tuple[str, Any]]:
        """The section `boot`."""
        yield from self._section("boot")
        yield "boot.prime", self.prime or None


class IoForm(Form):
    """Reads and writes of a growing fleet under one total cap."""

    vms_per_node: tuple[Size, ...] = Field(
        (), title="VMs per node", max_length=32, description="One size after the other; empty: the profile's"
    )
    cap_gib_per_s: float | None = Field(
        None, title="Cap", gt=0, le=1e6, description="Total of all VMs, GiB/s; empty: the profile's"
    )
    run_s: int | None = Field(
        None, title="Load", ge=1, le=1_000_000, description="Measured seconds per cell; empty: the profile's"
    )

    def stages_asked(self) -> tuple[StageName, ...]:
        """IO with what it needs."""
        return (*PREPARED, "io", *CLOSED)

    def sets(self) -> Iterator[tuple[str, Any]]:
        """The section `io`."""
        for name in ("vms_per_node", "cap_gib_per_s", "run_s"):
            yield f"io.{name}", getattr(self, name)


class LatencyForm(Form):
    """Jitter and network latency of real-time VirtualMachines."""

    tools: tuple[LatencyTool, ...] = Field(
        (), title="Tools", description="One after the other; empty: the profile's"
    )
    jitter_s: int | None = Field(
        None, title="Jitter", ge=1, le=10_000_000, description="Seconds of jitter; empty: the profile's"
    )
    network_s: int | None = Field(
        None, title="Network", ge=1, le=10_000_000, description="Seconds of l2reflect; empty: the profile's"
    )
    segment_s: int | None = Field(
        None,
        title="Segment",
        ge=1,
        le=10_000_000,
        description="Both are multiples of it; empty: the profile's",
    )

    def stages_asked(self) -> tuple[StageName, ...]:
        """Latency with what it needs."""
        return (*PREPARED, "latency", *CLOSED)

    def sets(self) -> Iterator[tuple[str, Any]]:
        """The section `latency`."""
        for name in ("tools", "jitter_s", "network_s", "segment_s"):
            yield f"latency.{name}", getattr(self, name)


class RunForm(Section):
    """A run that the store knows."""

    run_id: str = Field(
        title="Run", pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$", description="Name of the run"
    )
    store: str = Field(
        "results",
        title="Store",
        min_length=1,
        max_length=500,
        description="Folder of its results, or s3://BUCKET/PREFIX",
    )


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


FORMS: dict[str, type[Section]] = {
    "study": StudyForm,
    "tuning": TuningForm,
    "golden image": GoldenImageForm,
    "deploy": DeployForm,
    "boot storm": BootStormForm,
    "io scaling": IoForm,
    "latency": LatencyForm,
    "report": RunForm,
    "clean": RunForm,
}
"""The form of every flow, by the flow's name."""
