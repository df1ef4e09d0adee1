from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.percentiles import BatchKey, nearest_rank, percentile_rows, rank_of
from tasks.records import QUANTILES, TABLES

values_s = st.lists(st.none() | st.floats(0, 1e4), min_size=1, max_size=60)
quantiles = st.sampled_from([0.1, 1.0, 25.0, *QUANTILES, 99.9])


def brute_force(values: list[float | None], q: float) -> float | None:
    """The smallest value that at least q percent of all VMs do not exceed; unfinished are infinite."""
    reached = [inf if value is None else value for value in values]
    need = round(q * 10) * len(reached)
    enough = [v for v in reached if 1000 * sum(other <= v for other in reached) >= need]
    return None if min(enough) == inf else min(enough)


@pytest.mark.parametrize(
    ("q", "expected"), [(5.0, 15.0), (30.0, 20.0), (40.0, 20.0), (50.0, 35.0), (100.0, 50.0)]
)
def test_the_textbook_set_by_nearest_rank(q: float, expected: float) -> None:
    assert nearest_rank([35.0, 20.0, 15.0, 50.0, 40.0], q) == expected


@given(values_s, quantiles)
def test_equals_the_definition_by_brute_force(values: list[float | None], q: float) -> None:
    assert nearest_rank(values, q) == brute_force(values, q)


@given(values_s, quantiles, st.floats(1e4, 1e6))
def test_what_the_unfinished_would_have_taken_does_not_change_an_observed_percentile(
    values: list[float | None], q: float, late_s: float
) -> None:
    known = nearest_rank(values, q)
    filled = nearest_rank([late_s if value is None else value for value in values], q)
    assert filled == (late_s if known is None else known)


@given(st.lists(st.none(), min_size=1, max_size=9), quantiles)
def test_null_never_becomes_zero(values: list[float | None], q: float) -> None:
    assert nearest_rank(values, q) is None


def test_no_values_have_no_percentile() -> None:
    assert nearest_rank([], 50.0) is None


def test_ranks_are_exact_where_floats_are_not() -> None:
    assert rank_of(1000, 99.9) == 999
    assert rank_of(100, 7.0) == 7
    assert rank_of(3, 0.0) == 1


def test_a_percentile_outside_0_to_100_is_refused() -> None:
    with pytest.raises(ValueError, match="101"):
        nearest_rank([1.0], 101)


def boots() -> list[dict[str, object]]:
    ok = {"state": "ok", "requested_s": 1.0, "acknowledged_s": 1.5, "running_s": 9.0}
    late = {"state": "timeout", "requested_s": 2.0, "acknowledged_s": 2.5, "running_s": None}
    failed = {"state": "failed", "requested_s": 2.0, "acknowledged_s": 3.0, "running_s": 10.0}
    return [ok, late, failed]


def rows_of(step: str, basis: str) -> dict[float, dict[str, object]]:
    rows = percentile_rows(BatchKey("boot", 3), boots(), 60.0, ["acknowledged", "running"])
    return {row["q"]: row for row in rows if row["step"] == step and row["basis"] == basis}


def test_rows_count_the_censored_and_leave_them_beyond_the_limit() -> None:
    rows = rows_of("running", "release")
    assert rows[50.0]["value_s"] == 10.0
    assert rows[99.0]["value_s"] is None
    assert (rows[99.0]["n"], rows[99.0]["n_ok"], rows[99.0]["n_censored"]) == (3, 2, 1)
    assert rows[99.0]["limit_s"] == 60.0


def test_the_step_of_a_vm_that_failed_later_counts() -> None:
    assert rows_of("running", "release")[50.0]["value_s"] == 10.0


def test_the_request_basis_starts_at_each_vms_own_request() -> None:
    assert rows_of("running", "request")[50.0]["value_s"] == 8.0


def test_steps_the_world_cannot_see_have_no_rows() -> None:
    rows = percentile_rows(BatchKey("boot", 3), boots(), 60.0, ["acknowledged", "running"])
    assert {row["step"] for row in rows} == {"acknowledged", "running"}


def test_every_key_of_a_row_is_a_column() -> None:
    rows = percentile_rows(BatchKey("boot", 3), boots(), 60.0)
    assert set(rows[0]) <= set(TABLES["percentiles"].names)
