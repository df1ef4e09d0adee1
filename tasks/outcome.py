"""From the timelines of a batch to its rows: headline, verdict, percentiles."""

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median
from typing import Any

from tasks.analysis.percentiles import BatchKey, percentile_rows
from tasks.analysis.verdicts import BatchFacts, verdict
from tasks.batch import NS, Batch
from tasks.profile import Limits
from tasks.quiesce import Quiet
from tasks.records import VM_TABLES


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a batch's row says besides its timelines.

    `study_step` is the study's end point; `steps` are those this world can observe (None: all).
    """

    size: int
    repeat: int
    limit_s: float
    end_step: str
    study_step: str = ""
    asked_rate_per_s: float | None = None
    gap_s: float = 0.0
    clone_failures: int = 0
    clone_fallbacks: int = 0
    quiet: Quiet | None = None
    steps: Collection[str] | None = None
    nodes_lost: tuple[str, ...] = ()
    foreign_pods: int = 0
    one_clone_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows of one measured batch, ready to be stored."""

    batch: dict[str, Any]
    vms: list[dict[str, Any]]
    percentiles: list[dict[str, Any]]
    observer: list[dict[str, Any]]
    shards: list[dict[str, Any]]

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Table name to rows."""
        vm_table = VM_TABLES[self.batch["stage"]]
        return {
            vm_table: self.vms,
            "percentiles": self.percentiles,
            "batches": [self.batch],
            "observer": self.observer,
            "shards": self.shards,
        }


def outcome(batch: Batch, seen: Circumstances, limits: Limits) -> Outcome:
    """Everything that is stored of one batch."""
    vms = batch.rows(seen.size)
    key = BatchKey(batch.stage, seen.size, seen.repeat)
    percentiles = percentile_rows(key, vms, seen.limit_s, seen.steps)
    observer = batch.journal.rows(batch.stage, seen.size)
    shards = [{"stage": batch.stage, "batch": seen.size, **row} for row in batch.shards]
    return Outcome(_row(batch, seen, limits), vms, percentiles, observer, shards)


def _row(batch: Batch, seen: Circumstances, limits: Limits) -> dict[str, Any]:
    facts = _facts(batch, seen, limits)
    grade, reasons = verdict(facts, limits)
    quiet = seen.quiet
    study = batch.last_s(batch.seen[seen.study_step]) if seen.study_step else None
    return {
        "stage": batch.stage,
        "batch": seen.size,
        "repeat": seen.repeat,
        "released_at": batch.released_at,
        "n": facts.n,
        "n_ok": facts.n_ok,
        "n_timeout": facts.n_timeout,
        "n_failed": facts.n_failed,
        "n_lost": facts.n_lost,
        "asked_rate_per_s": seen.asked_rate_per_s,
        "achieved_rate_per_s": facts.achieved_rate_per_s,
        "limit_s": seen.limit_s,
        "end_to_end_s": batch.last_s(batch.ended),
        "end_to_end_error_s": _last_error_s(batch, seen.end_step),
        "study_end_to_end_s": study,
        "quiesce_s": quiet.quiesce_s if quiet else None,
        "leftovers": quiet.leftovers if quiet else None,
        "verdict": grade,
        "reasons": reasons,
    }


def _facts(batch: Batch, seen: Circumstances, limits: Limits) -> BatchFacts:
    quiet, journal = seen.quiet, batch.journal
    outages = journal.outages_over(limits.api_unavailable_s)
    return BatchFacts(
        n=len(batch),
        n_ok=len(batch.where("ok")),
        n_timeout=len(batch.where("timeout")),
        n_failed=len(batch.where("failed")),
        n_lost=len(batch.where("lost")),
        clone_failures=seen.clone_failures,
        clone_fallbacks=seen.clone_fallbacks,
        longest_watch_gap_s=seen.gap_s,
        asked_rate_per_s=seen.asked_rate_per_s,
        achieved_rate_per_s=achieved_rate_per_s(batch, paced=seen.asked_rate_per_s is not None),
        requests=sum(batch.attempts),
        throttled_requests=batch.throttled,
        leftovers=quiet.leftovers if quiet else 0,
        quiesced=quiet is None or quiet.quiet or quiet.leftovers > 0,
        server_errors=journal.errors_outside(outages),
        longest_outage_s=max(((b - a) / NS for a, b in outages), default=0.0),
        api_answer_s=median(journal.round_trips_s) if journal.round_trips_s else None,
        connections_lost=journal.connections_lost,
        clock_skew_s=journal.clock_skew_s,
        clock_moved_s=journal.clock_moved_s,
        watch_behind_s=journal.watch_behind_s,
        braked=batch.braked,
        n_held_back=sum(ns is None for ns in batch.requested) if batch.braked else 0,
        nodes_lost=seen.nodes_lost,
        foreign_changes=len(journal.foreign),
        foreign_pods=seen.foreign_pods,
        refused_requests=journal.refused,
        clone_pace_s=_clone_pace_s(batch),
        one_clone_s=seen.one_clone_s,
        shards_lost=tuple(batch.shards_lost),
        shards=len(batch.shards),
    )


def _clone_pace_s(batch: Batch) -> float | None:
    """Seconds per clone between the first and the last tenth of those that were bound."""
    bound = sorted(ns for ns in batch.seen.get("pvc_bound", ()) if ns is not None)
    tenth = len(bound) // 10
    if tenth == 0:
        return None
    last = len(bound) - 1 - tenth
    return (bound[last] - bound[tenth]) / NS / (last - tenth)


def achieved_rate_per_s(batch: Batch, *, paced: bool) -> float | None:
    """VMs acknowledged per second: of all from the release, of paced ones from the first to the last.

    N requests at a rate have N - 1 pauses between them, so one paced VM has no rate (None).
    """
    moments = [ns for ns in batch.seen["acknowledged"] if ns is not None]
    if not moments:
        return None
    start_ns, counted = (min(moments), len(moments) - 1) if paced else (batch.released_ns, len(moments))
    span_s = (max(moments) - start_ns) / NS
    return counted / span_s if span_s > 0 else None


def _last_error_s(batch: Batch, step: str) -> float | None:
    """How wide the interval was in which the last VM finished: it began before no VM's own."""
    end_s = batch.last_s(batch.ended)
    earliest_s = batch.last_s(batch.earliest(step))
    return None if end_s is None or earliest_s is None else end_s - earliest_s
