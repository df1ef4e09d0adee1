"""The io stage's arithmetic: the cap split, depth and pacing, rows of a cell, what charts may join."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.histograms import Bin
from tasks.analysis.io_answers import curves, latency_answer, segments, throughput_answer
from tasks.analysis.io_cells import Merged, VmResult, cell_row, is_saturated, start_skew_ms, vm_rows
from tasks.io_plan import (
    GIB,
    IoCell,
    baseline_of,
    cells_of,
    dataset_bytes,
    depth_of,
    in_order,
    load_of,
    measuring_jobs,
    phases_of,
    split,
)
from tasks.profile import Io

IO = Io()
CELL = IoCell(2064, 16, 64, "write")


@given(st.integers(0, 2**45), st.integers(1, 10_000))
def test_the_cap_is_split_exactly_and_evenly(total: int, parts: int) -> None:
    shares = split(total, parts)
    assert sum(shares) == total
    assert len(shares) == parts
    assert max(shares) - min(shares) <= 1


def test_the_cap_of_the_study_over_2064_vms() -> None:
    rates = load_of(IO, CELL).bytes_per_s
    assert sum(rates) == 10 * GIB
    assert set(rates) == {5_202_237, 5_202_238}


@pytest.mark.parametrize(("vms", "block", "depth"), [(129, 4, 41), (2064, 4, 3), (129, 64, 3), (2064, 64, 1)])
def test_depth_is_rate_times_expected_latency(vms: int, block: int, depth: int) -> None:
    assert depth_of(IO, IoCell(vms, 1, block, "read")) == depth
    assert depth_of(Io(depth=7), IoCell(vms, 1, block, "read")) == 7


@given(st.integers(1, 5000), st.sampled_from([4, 64, 1024]))
def test_a_baseline_stays_below_its_share_of_the_cap_however_fast_an_answer_is(vms: int, block: int) -> None:
    asked = baseline_of(IO, IoCell(vms, 1, block, "read"))
    fastest_gib_per_s = vms * block * 1024 / (asked.pause_us / 1e6) / GIB
    assert fastest_gib_per_s <= IO.cap_gib_per_s * IO.baseline_share * 1.01


def test_the_dataset_is_that_of_the_study() -> None:
    assert dataset_bytes(IO) == 11_010_048_000


def test_every_vm_and_section_has_its_own_random_offsets() -> None:
    cells = cells_of(IO, 258, 2)
    jobs = [measuring_jobs(IO, phases_of(IO, cells), f"vm-{i}", i).decode() for i in range(20)]
    seeds = [line for job in jobs for line in job.splitlines() if line.startswith("randseed=")]
    assert len(set(seeds)) == len(seeds) == 20 * 8
    assert all("randrepeat=0" in job for job in jobs)


def test_the_order_of_cells_is_drawn_by_run_size_and_repeat() -> None:
    orders = {tuple(in_order(IO, f"run{i}", 1, 1)) for i in range(30)}
    assert in_order(IO, "a", 1, 1) == in_order(IO, "a", 1, 1)
    assert all(sorted(order) == ["4-read", "4-write", "64-read", "64-write"] for order in orders)
    assert len(orders) > 5
    assert len({tuple(in_order(IO, "a", per_node, 1)) for per_node in range(30)}) > 5
    assert len({tuple(in_order(IO, "a", 1, repeat)) for repeat in range(30)}) > 5


def result(vm: str, **more: Any) -> VmResult:
    return VmResult(vm, "node", "ok", None, 1.0, 100.0, 1.0, (1.0, 2.0, 3.0), 4.0, **more)


def test_a_vm_without_a_result_counts_in_n_and_has_nulls() -> None:
    failed = VmResult("b", "node", "failed", "fio: got signal=9")
    row = cell_row([result("a", started_ms=1.0), failed], (Bin(1000, 1008, 5),), 2.0)
    assert (row["n"], row["n_ok"], row["iops"], row["gib_per_s"]) == (2, 1, 100.0, 1.0)
    of_vm = vm_rows([failed])[0]
    assert {of_vm[name] for name in ("iops", "gib_per_s", "p50_us", "p99_us", "max_us", "start_skew_ms")} == {
        None
    }
    assert of_vm["reason"] == "fio: got signal=9"


def test_a_cell_without_any_result_says_nothing() -> None:
    row = cell_row([VmResult("a", None, "failed", "off")], (), 2.0)
    assert {row[name] for name in ("iops", "gib_per_s", "p50_us", "p95_us", "p99_us", "max_us")} == {None}
    assert is_saturated(row, 0.01) is None


def test_a_cell_is_not_saturated_because_a_vm_failed() -> None:
    row = cell_row([result("a"), VmResult("b", None, "failed", "off")], (), 2.0)
    assert is_saturated(row, 0.01) is False
    assert is_saturated({**row, "gib_per_s": 0.98}, 0.01) is True


def test_the_skew_counts_what_the_guests_clocks_may_be_wrong() -> None:
    starts = [
        result("a", started_ms=1.0, clock_error_ms=0.5),
        result("b", started_ms=4.0, clock_error_ms=2.0),
    ]
    assert start_skew_ms(starts) == 7.0
    assert start_skew_ms([*starts, result("d", started_ms=2.0)]) is None
    assert start_skew_ms([VmResult("c", None, "failed", "off")]) is None


@given(st.lists(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=8), max_size=6))
def test_merging_does_not_depend_on_the_order_of_vms(vms: list[list[tuple[int, int]]]) -> None:
    bins = [[Bin(at * 8, at * 8 + 8, count) for at, count in vm] for vm in vms]
    there, back = Merged(), Merged()
    for each in bins:
        there.add(each)
    for each in reversed(bins):
        back.add(each)
    assert there.histogram() == back.histogram()
    assert sum(each.count for each in there.histogram()) == sum(count for vm in vms for _, count in vm)


def row(vms: int, pattern: str, phase: str, **more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "vms": vms, "vms_per_node": vms, "block_kib": 4, "pattern": pattern, "phase": phase, "repeat": 1,
        "attempt": 1, "asked_gib_per_s": 10.0, "iops": 2.6e6, "gib_per_s": 10.0, "saturated": False,
        "depth": 1, "p50_us": 300.0, "p95_us": 400.0, "p99_us": 500.0, "max_us": 900.0, "n": vms, "n_ok": vms,
        "start_skew_ms": 1.0, "dataset_gib": 1.0, "pause_us": None, "verdict": "valid", "reasons": [],
    }  # fmt: skip
    return {**plain, **more}


CELLS = pl.DataFrame(
    [
        row(129, "write", "load", saturated=True, gib_per_s=6.0, p99_us=30_000.0),
        row(258, "write", "load", saturated=True, gib_per_s=8.0, p99_us=20_000.0),
        row(516, "write", "load", p99_us=2000.0),
        row(129, "write", "baseline", saturated=None, gib_per_s=0.05, p50_us=400.0, pause_us=9),
        row(129, "read", "load"),
        row(129, "read", "baseline", saturated=None, gib_per_s=0.05, p50_us=400.0, pause_us=9),
    ],
    infer_schema_length=None,
)


def test_no_line_joins_a_saturated_cell_with_one_at_its_cap() -> None:
    lines: dict[str, set[str]] = {}
    for each in segments(curves(CELLS)):
        lines.setdefault(each["line"], set()).add(each["kind"])
    assert all(len(kinds) == 1 for kinds in lines.values())
    assert len(lines) == 5


def test_the_answers_name_what_missed_the_cap_and_the_tail_of_few_vms() -> None:
    throughput, latency = throughput_answer(CELLS), latency_answer(CELLS)
    assert throughput is not None
    assert "4 KiB writes do not at 129 and 258 VMs, least 6.00 GiB/s (60 %)" in throughput
    assert latency is not None
    assert "In 1 of 1 cells reads under load are quicker than the paced baseline." in latency
    assert "at 129 VMs against 258: 4 KiB 1.50 times" in latency


def test_nothing_measured_has_no_answer() -> None:
    empty = CELLS.clear()
    assert throughput_answer(empty) is latency_answer(empty) is None
