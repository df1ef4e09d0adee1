import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis import answers
from tasks.analysis.curves import curve, most_efficient
from tasks.analysis.distribution import distributions, first_boots_and_reboots
from tasks.analysis.doubling import Point, bend
from tasks.analysis.steps import shares, step_gaps
from tasks.analysis.summaries import headline_step, observed_steps, summaries
from tests.unit.made_up import end_s, frame, made_up

SMALL = (100, 200, 400)
UNSEEN = ("ip_known", "tcp_open", "ssh_banner", "ssh_ready")
seconds = st.none() | st.floats(0, 1e4)


@pytest.fixture(scope="module")
def study() -> dict[str, pl.DataFrame]:
    return made_up(late=20)


@pytest.fixture(scope="module")
def testbed() -> dict[str, pl.DataFrame]:
    return made_up((1, 2, 4), unseen=UNSEEN)


def test_a_summary_has_the_headline_percentiles_of_its_batch() -> None:
    frames = made_up(SMALL)
    rows = summaries(frames["batches"], frames["percentiles"])
    assert rows.height == frames["batches"].height
    boot = rows.filter((pl.col("stage") == "boot") & (pl.col("batch") == 100)).row(0, named=True)
    assert boot["step"] == "ssh_ready"
    assert boot["max_s"] == pytest.approx(end_s("boot", 100))


def test_without_guests_the_headline_of_a_boot_is_running(testbed: dict[str, pl.DataFrame]) -> None:
    assert headline_step("boot", observed_steps(testbed["percentiles"], "boot")) == "running"


def test_a_batch_without_percentiles_keeps_its_row() -> None:
    frames = made_up(SMALL, stages=("deploy",))
    rows = summaries(frames["batches"], frames["percentiles"].clear())
    assert rows.get_column("step").to_list() == [None] * 3


def test_a_curve_point_is_the_median_of_its_repeats() -> None:
    times = [10.0, None, 12.0, None, None]
    keys = {"stage": "boot", "n": 1, "n_ok": 1, "limit_s": 60.0, "world": "virtual", "verdict": "valid"}
    rows = [{**keys, "batch": 5 if i < 3 else 9, "repeat": i, "end_to_end_s": t} for i, t in enumerate(times)]
    assert curve(frame("batches", rows), "boot") == [Point(5, 12.0, 60.0, None), Point(9, None, 60.0, None)]


def test_a_curve_point_has_the_error_bound_of_its_median() -> None:
    keys = {"stage": "boot", "n": 1, "n_ok": 1, "limit_s": 60.0, "world": "virtual", "verdict": "valid"}
    times = [(10.0, 0.5), (12.0, 1.5), (14.0, 0.5)]
    rows = [
        {**keys, "batch": 5, "repeat": i, "end_to_end_s": t, "end_to_end_error_s": e}
        for i, (t, e) in enumerate(times)
    ]
    assert curve(frame("batches", rows), "boot") == [Point(5, 12.0, 60.0, 1.5)]


def test_the_ideal_goes_through_the_batch_with_the_least_time_per_vm() -> None:
    assert most_efficient([Point(1, 5.0), Point(2, 6.0), Point(4, None)]) == Point(2, 6.0)
    assert most_efficient([Point(4, None)]) is None


@given(st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=20))
def test_what_steps_add_is_never_negative_and_never_made_of_nulls(
    rows: list[tuple[float | None, ...]],
) -> None:
    columns = dict(zip(("a_s", "b_s", "c_s"), zip(*rows, strict=True), strict=True))
    vms = pl.DataFrame(
        {"batch": [1] * len(rows), **columns}, schema_overrides=dict.fromkeys(columns, pl.Float64)
    )
    for gap in step_gaps(vms, ["a", "b", "c"]):
        assert gap["median_s"] is None or gap["median_s"] >= 0
        if gap["n_ok"] == 0:
            assert gap["median_s"] is None


def test_steps_by_hand() -> None:
    vms = pl.DataFrame({"batch": [1, 1, 1], "a_s": [1.0, 2.0, 3.0], "b_s": [4.0, 1.5, None]})
    gaps = {gap["step"]: gap["median_s"] for gap in step_gaps(vms, ["a", "b"])}
    assert gaps == {"a": 2.0, "b": 3.0}
    assert shares(step_gaps(vms, ["a", "b"]), 1) == {"a": 0.4, "b": 0.6}


def test_a_distribution_counts_the_unfinished(study: dict[str, pl.DataFrame]) -> None:
    last = distributions(study["vm_boots"], "ssh_ready")[-1]
    assert (last["batch"], last["n"], last["n_censored"]) == (6000, 6000, 20)
    assert last["max_s"] is None
    assert last["p50_s"] is not None


def test_first_boots_are_kept_apart_from_reboots() -> None:
    row = first_boots_and_reboots(made_up(SMALL)["vm_boots"], "ssh_ready")[0]
    assert (row["first_boots"], row["reboots"]) == (50, 50)


def test_answers_are_computed_from_the_data(study: dict[str, pl.DataFrame]) -> None:
    assert answers.end_to_end_answer(study["batches"], "deploy") == (
        "Deploying 6,000 VMs takes 40 min 2 s ±0.1 s; "
        "it is linear: each doubling of VMs takes 1.95 to 2.00 times as long."
    )
    boot = answers.end_to_end_answer(study["batches"], "boot")
    assert boot is not None
    assert boot.startswith(
        "A boot storm of 6,000 VMs takes > 30 min; it grows no faster than linearly up to 1,600"
    )
    placed = answers.placement_answer(study["placements"])
    assert placed is not None
    assert placed.startswith("6,000 VMs on 129 nodes are balanced: 45 to 48 per node, mean 46.5")


def test_few_vms_on_many_nodes_are_as_even_as_can_be(testbed: dict[str, pl.DataFrame]) -> None:
    placed = answers.placement_answer(testbed["placements"])
    assert placed is not None
    assert placed.startswith("4 VMs on 129 nodes are as even as can be: 0 to 1 per node")


def test_a_stage_without_data_has_no_answer() -> None:
    frames = made_up(SMALL, stages=("deploy",))
    assert answers.end_to_end_answer(frames["batches"], "boot") is None
    assert answers.placement_answer(frames["placements"]) is None
    assert answers.steps_answer([]) is None
    assert answers.not_measured(frames) == "Not measured in this run: boot storms, IO scaling and jitter."


def test_one_size_says_nothing_about_growth() -> None:
    assert "one size alone" in answers.linearity_answer([Point(4, 3.0)])
    assert "too few" in answers.linearity_answer([Point(4, None, 60.0), Point(8, None, 60.0)])


def test_an_unconfirmed_jump_is_called_uneven() -> None:
    points = [Point(100, 10.0), Point(200, 26.0), Point(400, 40.0)]
    assert answers.linearity_answer(points) == (
        "it is uneven: 200 VMs take 2.60 times as long (linear: 2) as 100, and no larger batch confirms a "
        "bend."
    )


def test_a_bound_that_allows_both_is_too_small_to_tell() -> None:
    tiny = [Point(6, 4.0, None, 0.8), Point(12, 8.2, None, 0.8)]
    assert answers.linearity_answer(tiny) == (
        "too small to tell whether that is linear: within the error bounds 12 VMs take 1.85 to 2.56 times "
        "as long as 6."
    )
    assert bend([Point(6, 4.0, None, 0.8), Point(12, 9.4, None, 0.8)]) is None


def test_a_bound_that_is_not_known_proves_nothing() -> None:
    unknown = [Point(100, 10.0, None, None), Point(200, 20.0, None, 0.1)]
    assert answers.linearity_answer(unknown).startswith("too small to tell whether that is linear")
    assert bend([Point(100, 10.0, None, 0.1), Point(200, 90.0, None, None)]) is None


def test_what_is_too_small_to_tell_is_named_beside_what_is_clear() -> None:
    points = [Point(10, 1.0, None, 0.5), Point(20, 2.0, None, 0.5), Point(1000, 100.0), Point(2000, 300.0)]
    assert answers.linearity_answer(points) == (
        "it bends between 1,000 and 2,000, a step that takes 3.00 times as long (linear: 2); growth to 20 "
        "and 1,000 VMs is too small to tell within the error bounds."
    )


def test_a_batch_beyond_its_limit_is_no_proof_of_linear_growth() -> None:
    late = [Point(100, 10.0), Point(200, None, 15.0)]
    assert answers.linearity_answer(late) == (
        "whether that is linear is not known: 200 VMs take at least 1.50 times as long as 100."
    )


def test_linear_steps_that_add_up_to_more_creep() -> None:
    points = [Point(100, 10.0), Point(200, 21.4), Point(400, 45.8)]
    assert answers.linearity_answer(points) == (
        "no step bends, but it creeps: each doubling takes 2.14 times as long, and a VM of 400 takes 15 % "
        "longer than one of 100."
    )
