import re
from typing import Any

from tasks.report_text import batch_line, verdict_line

SUMMARY: dict[str, Any] = {
    "stage": "boot", "batch": 3200, "n_ok": 3198, "n_timeout": 2, "n_failed": 0, "n_lost": 0,
    "limit_s": 1800.0, "end_to_end_s": None, "end_to_end_error_s": None,
    "step": "ssh_ready", "p50_s": 372.0, "p99_s": None,
    "verdict": "invalid", "reasons": ["vm_not_ok: 2 of 3,200 timeout"],
}  # fmt: skip


def test_a_line_names_failures_limits_and_reasons() -> None:
    line = batch_line(SUMMARY)
    for part in ("boot", "3,200", "ok 3,198  2 timeout", "end to end > 30 min"):
        assert part in line
    assert re.search(r"p50 6 min 12 s +p99 > 30 min", line)
    assert line.endswith("invalid: vm_not_ok: 2 of 3,200 timeout")


def test_a_valid_line_ends_with_its_numbers() -> None:
    good = SUMMARY | {"n_timeout": 0, "n_ok": 3200, "end_to_end_s": 161.2, "end_to_end_error_s": 0.1}
    line = batch_line(good | {"p99_s": 159.0, "verdict": "valid", "reasons": []})
    assert "2 min 41 s ±0.1 s" in line
    assert line.endswith("p99 2 min 39 s")


def test_a_step_that_was_not_observable_has_no_percentiles() -> None:
    assert "p50 -" in batch_line(SUMMARY | {"step": None, "p50_s": None})


def test_lines_of_a_run_are_aligned() -> None:
    other = SUMMARY | {"stage": "deploy", "batch": 100, "n_timeout": 0, "n_ok": 100, "end_to_end_s": 41.0}
    assert batch_line(SUMMARY).index("end to end") == batch_line(other).index("end to end")


def test_the_verdict_line() -> None:
    assert verdict_line("valid", []) == "verdict valid"
    assert verdict_line("invalid", ["a: b", "c"]) == "verdict invalid: a: b; c"
