"""PURE. The parts of a profile that judge: what still counts as quiet, valid, bearable, no regression."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
Seconds = Annotated[float, Field(ge=0.001, le=1e9)]


class Section(BaseModel):
    """A part of the profile: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Quiesce(Section):
    """The gate between batches."""

    limit_s: Seconds = Field(1800, description="longest wait for a cluster as quiet as at the start, seconds")
    probe_ratio: Positive = Field(2.0, description="API answers may be so many times slower than at first")


class Limits(Section):
    """Thresholds of the verdicts."""

    vm_not_ok_degraded: int = Field(
        0, ge=0, le=1_000_000, description="more VMs than this not ok: the batch is degraded"
    )
    vm_not_ok_invalid_share: float = Field(
        0.0, ge=0, le=1, description="larger share not ok: the batch is invalid"
    )
    rate_missed_share: Positive = Field(0.1, description="achieved rate may fall so far below a stated one")
    throttled_share: Positive = Field(0.05, description="share of 429 answers that is still no reason")
    watch_gap_s: Seconds = Field(1.0, description="a longer gap of a watch is a reason, seconds")
    watch_behind_s: Seconds = Field(
        5.0, description="a watch may tell what the API has answered so much later, seconds"
    )
    io_saturated_share: float = Field(
        0.01, ge=0, lt=1, description="a cell that misses its asked rate by more than this share is saturated"
    )
    io_start_skew_ms: Positive = Field(
        1000.0, description="VMs that start further apart than this are a reason, ms"
    )
    server_errors_share: Positive = Field(0.05, description="share of 5xx answers that is still no reason")
    api_unavailable_s: Seconds = Field(5.0, description="the API may answer nothing for so long, seconds")
    api_slow_s: Seconds = Field(1.0, description="half of the heartbeats' answers may take longer, seconds")
    connections_lost: int = Field(
        3, ge=0, le=1_000_000, description="watch connections that may break in a batch"
    )
    clock_skew_s: Seconds = Field(2.0, description="objects may be dated so far from our clock, seconds")
    nodes_lost: int = Field(0, ge=0, le=1_000_000, description="nodes that may stop being Ready")
    clones_failed: int = Field(0, ge=0, le=1_000_000, description="clones that may fail")
    clones_copied: int = Field(
        0, ge=0, le=1_000_000, description="clones that may be copied instead of made from the snapshot"
    )
    foreign_changes: int = Field(0, ge=0, le=1_000_000, description="VMs that others may change")
    foreign_pods: int = Field(20, ge=0, le=1_000_000, description="pods of others that may come or go")
    leftovers: int = Field(0, ge=0, le=1_000_000, description="objects of a batch that may be left")
    slow_storage_ratio: Positive = Field(
        2.0, description="time per clone of a batch may be so many times that of one clone alone"
    )


class Brakes(Section):
    """When no more of a batch is issued, for the sake of those who share the cluster."""

    active: bool | None = Field(
        None, description="whether they are on; left out: everywhere but on the virtual cluster"
    )
    nodes_lost: int = Field(0, ge=0, le=1_000_000, description="nodes that may stop being Ready meanwhile")
    api_p99_s: Seconds = Field(10.0, description="99 % of the API's answers may take so long, seconds")
    foreign_failed: int = Field(0, ge=0, le=1_000_000, description="VMs of others that may start to fail")

    def are_on(self, world: str) -> bool:
        """Whether they are on in a world of that name."""
        return world != "virtual" if self.active is None else self.active


class Compare(Section):
    """What `virtscale compare` calls a regression, when this run is the baseline."""

    confidence: float = Field(
        0.95, gt=0, lt=1, description="with which all intervals of a comparison hold together"
    )
    end_to_end_share: Positive = Field(0.05, description="slower end to end than this is a regression")
    percentile_share: Positive = Field(0.05, description="the same of a percentile of the VMs' times")
    io_rate_share: Positive = Field(0.05, description="fewer IO operations per second than this")
    io_latency_share: Positive = Field(0.1, description="a longer IO latency than this")
    jitter_share: Positive = Field(0.1, description="a larger maximum of jitter or network latency than this")
