"""PURE. What a batch is worth: valid, degraded or invalid, each reason a code and its detail."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.records import VERDICTS

if TYPE_CHECKING:
    from tasks.profile import Limits

INVALIDATING = frozenset({"clone_fallback", "clock_skew"})
"""Codes after which the batch measured something else than what it says; any other code degrades."""


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What was counted while a batch ran. Zero and None mean "none seen", so set what was observed.

    Rates are VMs per second, gaps seconds, counts plain numbers. `other` holds reasons that a stage
    found by itself as (code, detail), for example `("node_lost", "worker-17")`.
    """

    n: int
    n_ok: int
    n_timeout: int = 0
    n_failed: int = 0
    n_lost: int = 0
    clone_failures: int = 0
    clone_fallbacks: int = 0
    longest_watch_gap_s: float = 0.0
    asked_rate_per_s: float | None = None
    achieved_rate_per_s: float | None = None
    requests: int = 0
    throttled_requests: int = 0
    leftovers: int = 0
    foreign_changes: int = 0
    quiesced: bool = True
    server_errors: int = 0
    longest_outage_s: float = 0.0
    api_answer_s: float | None = None
    connections_lost: int = 0
    clock_skew_s: float = 0.0
    clock_moved_s: float = 0.0
    watch_behind_s: float = 0.0
    braked: str = ""
    n_held_back: int = 0
    nodes_lost: tuple[str, ...] = ()
    foreign_pods: int = 0
    refused_requests: int = 0
    clone_pace_s: float | None = None
    one_clone_s: float | None = None
    shards_lost: tuple[int, ...] = ()
    shards: int = 0
    other: tuple[tuple[str, str], ...] = ()


def verdict(facts: BatchFacts, limits: "Limits") -> tuple[str, list[str]]:
    """The verdict of a batch and its reasons, `code: detail`, codes as in DESIGN.md (Clocks, 6)."""
    found = [
        *_vm_reasons(facts),
        *_observer_reasons(facts, limits),
        *_api_reasons(facts, limits),
        *_cluster_reasons(facts, limits),
        *_stranger_reasons(facts, limits),
        *facts.other,
    ]
    grades = [_vm_grade(facts, limits), *(_grade(code) for code, _ in found if code != "vm_not_ok")]
    reasons = [f"{code}: {detail}" if detail else code for code, detail in found]
    return worst(grades), reasons


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts; valid when there are none."""
    return max(verdicts, key=VERDICTS.index, default=VERDICTS[0])


def _grade(code: str) -> str:
    return "invalid" if code in INVALIDATING else "degraded"


def _vm_grade(facts: BatchFacts, limits: "Limits") -> str:
    not_ok = facts.n - facts.n_ok
    if not_ok > facts.n * limits.vm_not_ok_invalid_share:
        return "invalid"
    return "degraded" if not_ok > limits.vm_not_ok_degraded else "valid"


def _vm_reasons(facts: BatchFacts) -> Iterator[tuple[str, str]]:
    if facts.braked:
        yield "brake", f"{facts.n_held_back:,} of {facts.n:,} requests held back: {facts.braked}"
    if facts.n_ok == facts.n:
        return
    counts = {"timeout": facts.n_timeout, "failed": facts.n_failed, "lost": facts.n_lost}
    counts["without a record"] = facts.n - facts.n_ok - sum(counts.values())
    first, *more = [f"{count:,} {state}" for state, count in counts.items() if count > 0] or ["not ok"]
    count, _, state = first.partition(" ")
    yield "vm_not_ok", ", ".join([f"{count} of {facts.n:,} {state}", *more])


def _observer_reasons(facts: BatchFacts, limits: "Limits") -> Iterator[tuple[str, str]]:
    if facts.longest_watch_gap_s > limits.watch_gap_s:
        yield "watch_gap", f"longest {facts.longest_watch_gap_s:.1f} s (limit {limits.watch_gap_s:g} s)"
    if facts.watch_behind_s > limits.watch_behind_s:
        yield (
            "watch_gap",
            f"a watch was {facts.watch_behind_s:.1f} s late (limit {limits.watch_behind_s:g} s)",
        )
    if facts.shards_lost:
        lost = ", ".join(map(str, facts.shards_lost))
        yield "shard_lost", f"{len(facts.shards_lost)} of {facts.shards} processes died: shard {lost}"
    if _rate_missed(facts, limits):
        achieved = facts.achieved_rate_per_s
        got = "not measured" if achieved is None else f"{achieved:.3g}/s achieved"
        yield "rate_missed", f"{facts.asked_rate_per_s:g}/s asked, {got}"
    if facts.throttled_requests > facts.requests * limits.throttled_share:
        yield "throttled", f"{facts.throttled_requests:,} of {facts.requests:,} requests answered 429"


def _rate_missed(facts: BatchFacts, limits: "Limits") -> bool:
    if facts.asked_rate_per_s is None or facts.n < 2:
        return False
    achieved = facts.achieved_rate_per_s
    return achieved is None or achieved < facts.asked_rate_per_s * (1 - limits.rate_missed_share)


def _api_reasons(facts: BatchFacts, limits: "Limits") -> Iterator[tuple[str, str]]:
    if facts.longest_outage_s > limits.api_unavailable_s:
        yield (
            "api_unavailable",
            f"no answer for {facts.longest_outage_s:.1f} s (limit {limits.api_unavailable_s:g} s)",
        )
    if facts.api_answer_s is not None and facts.api_answer_s > limits.api_slow_s:
        yield "api_slow", f"half of the answers took over {facts.api_answer_s:.2g} s"
    if facts.server_errors > facts.requests * limits.server_errors_share:
        yield "server_errors", f"{facts.server_errors:,} of {facts.requests:,} requests answered 5xx"
    if facts.refused_requests:
        yield "auth_expired", f"{facts.refused_requests:,} requests refused as not allowed (401, 403)"
    if facts.connections_lost > limits.connections_lost:
        yield "connection_lost", f"{facts.connections_lost:,} watch connections broke"


def _cluster_reasons(facts: BatchFacts, limits: "Limits") -> Iterator[tuple[str, str]]:
    if len(facts.nodes_lost) > limits.nodes_lost:
        yield "node_lost", _some(facts.nodes_lost)
    if facts.clone_failures > limits.clones_failed:
        yield "clone_failed", f"{facts.clone_failures:,} of {facts.n:,}"
    if facts.clone_fallbacks > limits.clones_copied:
        yield "clone_fallback", f"{facts.clone_fallbacks:,} of {facts.n:,} not cloned from the snapshot"
    pace_s, one_s = facts.clone_pace_s, facts.one_clone_s
    if pace_s is not None and one_s is not None and pace_s > one_s * limits.slow_storage_ratio:
        yield "slow_storage", f"{pace_s:.2g} s per clone; one alone took {one_s:.2g} s"
    if facts.leftovers > limits.leftovers:
        yield "not_quiescent", f"{facts.leftovers:,} objects of the batch were left"
    if not facts.quiesced:
        yield "not_quiescent", "the cluster was not quiet within the limit"


def _stranger_reasons(facts: BatchFacts, limits: "Limits") -> Iterator[tuple[str, str]]:
    if facts.foreign_changes > limits.foreign_changes:
        yield "foreign_change", f"{facts.foreign_changes:,} of our objects changed by somebody else"
    if facts.foreign_pods > limits.foreign_pods:
        yield "foreign_load", f"{facts.foreign_pods:,} pods of others came or went"
    if facts.clock_skew_s > limits.clock_skew_s:
        yield "clock_skew", f"objects are dated {facts.clock_skew_s:.1f} s from this machine's clock"
    if facts.clock_moved_s > limits.clock_skew_s:
        yield "clock_skew", f"this machine's clock was set {facts.clock_moved_s:.1f} s off meanwhile"


def _some(names: tuple[str, ...], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
