from dataclasses import replace
from typing import Any

import pytest

from tasks.analysis.verdicts import BatchFacts, verdict, worst
from tasks.profile import Limits

LIMITS = Limits()
FINE = BatchFacts(n=3200, n_ok=3200, requests=6400)


def test_a_batch_without_findings_is_valid_without_reasons() -> None:
    assert verdict(FINE, LIMITS) == ("valid", [])


def test_one_vm_not_ok_invalidates_by_default() -> None:
    facts = replace(FINE, n_ok=3180, n_timeout=20)
    assert verdict(facts, LIMITS) == ("invalid", ["vm_not_ok: 20 of 3,200 timeout"])


def test_vms_not_ok_within_a_stated_share_only_degrade() -> None:
    facts = replace(FINE, n_ok=3195, n_timeout=3, n_failed=2)
    limits = Limits(vm_not_ok_invalid_share=0.01)
    assert verdict(facts, limits) == ("degraded", ["vm_not_ok: 3 of 3,200 timeout, 2 failed"])


def test_vms_not_ok_within_both_limits_are_named_in_a_valid_batch() -> None:
    limits = Limits(vm_not_ok_degraded=5, vm_not_ok_invalid_share=0.01)
    assert verdict(replace(FINE, n_ok=3195, n_failed=5), limits) == (
        "valid",
        ["vm_not_ok: 5 of 3,200 failed"],
    )


def test_a_vm_without_a_record_is_not_overlooked() -> None:
    assert verdict(replace(FINE, n_ok=3199), LIMITS) == (
        "invalid",
        ["vm_not_ok: 1 of 3,200 without a record"],
    )


@pytest.mark.parametrize(
    ("finding", "grade", "code"),
    [
        ({"longest_watch_gap_s": 4.2}, "degraded", "watch_gap"),
        ({"asked_rate_per_s": 20.0, "achieved_rate_per_s": 12.0}, "degraded", "rate_missed"),
        ({"asked_rate_per_s": 20.0}, "degraded", "rate_missed"),
        ({"throttled_requests": 3000}, "degraded", "throttled"),
        ({"foreign_changes": 1}, "degraded", "foreign_change"),
        ({"leftovers": 2}, "degraded", "not_quiescent"),
        ({"quiesced": False}, "degraded", "not_quiescent"),
        ({"clone_failures": 2}, "degraded", "clone_failed"),
        ({"clone_fallbacks": 1}, "invalid", "clone_fallback"),
        ({"other": (("node_lost", "worker-17"),)}, "degraded", "node_lost"),
    ],
)
def test_each_finding_has_its_code(finding: dict[str, object], grade: str, code: str) -> None:
    found, reasons = verdict(replace(FINE, **finding), LIMITS)  # type: ignore[arg-type]
    assert found == grade
    assert [reason.partition(":")[0] for reason in reasons] == [code]


@pytest.mark.parametrize(
    "finding",
    [
        {"longest_watch_gap_s": 1.0},
        {"asked_rate_per_s": 20.0, "achieved_rate_per_s": 18.0},
        {"throttled_requests": 320},
    ],
)
def test_findings_under_their_threshold_are_no_reason(finding: dict[str, object]) -> None:
    assert verdict(replace(FINE, **finding), LIMITS) == ("valid", [])  # type: ignore[arg-type]


def test_the_worst_verdict_wins() -> None:
    assert worst(["valid", "degraded", "valid"]) == "degraded"
    assert worst([]) == "valid"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"server_errors": 400}, "server_errors"),
        ({"longest_outage_s": 6.0}, "api_unavailable"),
        ({"api_answer_s": 1.5}, "api_slow"),
        ({"connections_lost": 4}, "connection_lost"),
        ({"clock_skew_s": 3.0}, "clock_skew"),
        ({"nodes_lost": ("worker-1",)}, "node_lost"),
        ({"foreign_changes": 1}, "foreign_change"),
        ({"foreign_pods": 21}, "foreign_load"),
        ({"refused_requests": 1}, "auth_expired"),
        ({"clone_pace_s": 3.0, "one_clone_s": 1.0}, "slow_storage"),
    ],
)
def test_a_disturbance_past_its_threshold_is_the_only_reason(changes: dict[str, Any], code: str) -> None:
    _, reasons = verdict(replace(FINE, **changes), Limits())
    assert [reason.partition(":")[0] for reason in reasons] == [code]


def test_what_stays_at_its_threshold_is_no_reason() -> None:
    facts = replace(
        FINE, server_errors=320, longest_outage_s=5.0, api_answer_s=1.0, connections_lost=3,
        clock_skew_s=2.0, foreign_pods=20, clone_pace_s=2.0, one_clone_s=1.0,
    )  # fmt: skip
    assert verdict(facts, Limits()) == ("valid", [])
