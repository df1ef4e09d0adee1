"""What the report says of latencies is computed from the rows, and no more than they allow."""

from typing import Any

import polars as pl
import pytest

from tasks.analysis.latency import judged_segments, latency_answer, length_s, maxima_over_time, vm_rows
from tasks.charts.look import Caption
from tasks.records import TABLES
from tasks.report.latency import latency_sections

CAPTION = Caption("virtual", "virtual:study · run r")
BINS = {("a", 1): {3: 900, 40: 100}, ("a", 2): {3: 1000}, ("b", 1): {3: 999, 54: 1}, ("b", 2): {3: 1000}}


def frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = pl.DataFrame(TABLES[table].empty_table()).schema
    empty = dict.fromkeys(schema.names())
    return pl.DataFrame([{**empty, "world": "virtual", **row} for row in rows], schema=schema)


def runs(**changes: Any) -> pl.DataFrame:
    rows = []
    for (vm, segment), bins in BINS.items():
        found = {"tool": "jitterdebugger", "vm": vm, "cpu": 2, "segment": segment, "attempt": 1}
        found |= {"duration_s": 3600.0, "samples": 1000, "max_us": float(max(bins)), "overflow": 0}
        rows.append({**found, "coverage": 0.5 if segment == 2 else 1.0, "state": "ok", **changes})
    return frame("latency_runs", rows)


def histograms() -> pl.DataFrame:
    keys = {"tool": "jitterdebugger", "cpu": 2, "attempt": 1}
    rows = [
        {
            **keys,
            "vm": vm,
            "segment": segment,
            "lower_ns": us * 1000,
            "upper_ns": us * 1000 + 1000,
            "count": n,
        }
        for (vm, segment), bins in BINS.items()
        for us, n in bins.items()
    ]
    return frame("latency_histograms", rows)


def test_a_vm_has_the_maximum_percentiles_coverage_and_bound_of_all_its_segments() -> None:
    first, second = vm_rows(runs(), histograms(), "jitterdebugger")
    assert (first["samples"], first["max_us"], first["p50_us"], first["p99_us"]) == (2000, 40.0, 4.0, 40.0)
    assert (second["max_us"], second["p99_us"], second["p99_99_us"]) == (54.0, 4.0, 54.0)
    assert first["coverage"] == pytest.approx(0.75)
    assert first["longer_share"] == pytest.approx(3 / 2000)


def test_the_answer_names_each_maximum_and_what_so_many_samples_allow_to_say() -> None:
    rows = vm_rows(runs(), histograms(), "jitterdebugger")
    answer = latency_answer(rows, "jitterdebugger", length_s(runs(), "jitterdebugger"))
    assert "40 us and 54 us in 2 h of 2 VMs" in answer
    assert "with 4,000 samples and none above 54 us" in answer
    assert "less often than once in 1,333 (3/n, 95 % confidence)" in answer


def test_maxima_over_time_never_fall() -> None:
    rows = maxima_over_time(runs(), "jitterdebugger")
    assert [(row["vm"], row["hours"], row["max_us"], row["so_far_us"]) for row in rows] == [
        ("a", 1.0, 40.0, 40.0),
        ("a", 2.0, 3.0, 40.0),
        ("b", 1.0, 54.0, 54.0),
        ("b", 2.0, 3.0, 54.0),
    ]


def test_what_was_not_measured_is_no_maximum_of_zero_and_takes_its_place_in_time() -> None:
    lost = pl.when(pl.col("segment") == 1).then(None)
    columns = [lost.otherwise(pl.col(name)).alias(name) for name in ("max_us", "duration_s")]
    rows = maxima_over_time(runs().with_columns(columns), "jitterdebugger")
    assert [(row["vm"], row["hours"], row["max_us"], row["so_far_us"]) for row in rows[:2]] == [
        ("a", 1.0, None, None),
        ("a", 2.0, 3.0, 3.0),
    ]


def test_a_section_has_a_histogram_on_a_log_axis_maxima_over_time_and_the_world() -> None:
    frames = {"latency_runs": runs(), "latency_histograms": histograms()}
    (section,) = latency_sections(frames, CAPTION)
    histogram, over_time = (chart.to_dict() for chart, _ in section.charts)
    assert "'type': 'log'" in str(histogram)
    assert histogram["title"]["subtitle"] == over_time["title"]["subtitle"]
    assert "VIRTUAL" in over_time["title"]["subtitle"]
    assert any("3/n" in each for each in section.method)


def test_without_rows_there_is_no_section() -> None:
    frames = {"latency_runs": runs().clear(), "latency_histograms": histograms().clear()}
    assert latency_sections(frames, CAPTION) == []


def test_a_tool_of_which_nothing_is_known_is_said_and_not_drawn() -> None:
    lost = runs(state="failed", reason="the unit is gone", samples=None, max_us=None, coverage=None)
    frames = {"latency_runs": lost, "latency_histograms": histograms().clear()}
    (section,) = latency_sections(frames, CAPTION)
    assert (section.answer, section.charts) == (
        "jitterdebugger measured nothing: 4 records are not ok.",
        [],
    )


@pytest.mark.parametrize(
    ("changes", "verdict", "reasons"),
    [
        ({}, "valid", []),
        ({"reason": "noise_gone: x"}, "degraded", ["noise_gone: x"]),
        ({"state": "failed", "reason": "gone"}, "invalid", ["vm_not_ok: 2 of 2: gone"]),
    ],
)
def test_every_segment_has_a_verdict(changes: dict[str, Any], verdict: str, reasons: list[str]) -> None:
    rows = judged_segments(runs(**changes)).to_dicts()
    assert [row["batch"] for row in rows] == ["jitterdebugger segment 1", "jitterdebugger segment 2"]
    assert {(row["verdict"], tuple(row["reasons"])) for row in rows} == {(verdict, tuple(reasons))}
