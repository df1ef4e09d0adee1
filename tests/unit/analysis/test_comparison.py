"""Comparisons of made-up readings: what is certain, what is not, how often nothing is called something."""

from collections.abc import Mapping
from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.comparison import Comparison, Decision, Family, Metric, Reading, Rules, Unit, compare

TIME = Metric("deploy end to end", "end_to_end", "s")
IOPS = Metric("io 4 KiB read IOPS", "io_rate", "IOPS", higher_is_better=True)
THRESHOLDS: Mapping[Family, float] = {
    "end_to_end": 0.05, "percentile": 0.05, "io_rate": 0.05, "io_latency": 0.1, "jitter": 0.1
}  # fmt: skip
RULES = Rules(0.95, THRESHOLDS)
SIZES = (10, 20, 40, 80)
LIMIT_S = 7200.0


def readings(
    seed: int, repeats: int = 3, factor: float = 1.0, noise: float = 0.015, sizes: tuple[int, ...] = SIZES
) -> dict[Unit, Reading]:
    """A linear stage; everything that varies is the batch's: its VMs are slow together."""
    random = Random(seed)
    return {
        (n, r): Reading((2 + 0.4 * n) * factor * exp(random.gauss(0, noise)), LIMIT_S, 0.0)
        for r in range(1, repeats + 1)
        for n in sizes
    }


def one(baseline: Mapping[Unit, Reading], run: Mapping[Unit, Reading], metric: Metric = TIME) -> Comparison:
    (found,) = compare({metric: baseline}, {metric: run}, RULES)
    return found


def values(*times: float | None, limit: float | None = LIMIT_S) -> dict[Unit, Reading]:
    """One repeat of 10, 20, 40 ... VMs."""
    return {(10 * 2**i, 1): Reading(time, limit, 0.0) for i, time in enumerate(times)}


def test_a_slower_run_is_a_regression_and_the_quicker_one_an_improvement() -> None:
    slow, usual = readings(1, factor=1.1), readings(2)
    assert one(usual, slow).decision == "regression"
    assert one(slow, usual).decision == "improvement"


def test_fewer_operations_are_worse_and_more_are_better() -> None:
    more, usual = readings(1, factor=1.1), readings(2)
    assert one(usual, more, IOPS).decision == "improvement"
    assert one(more, usual, IOPS).decision == "regression"


def test_a_certain_change_below_the_threshold_is_no_regression() -> None:
    found = one(readings(1, noise=0.001), readings(2, noise=0.001, factor=1.03))
    assert (found.decision, found.low is not None and found.low > 0) == ("below threshold", True)


def test_a_large_change_within_the_noise_is_not_decided() -> None:
    found = one(readings(1, noise=0.3), readings(2, noise=0.3, factor=1.2))
    assert (found.decision, found.by) == ("undecided", "repeats")


def test_one_repeat_makes_the_sizes_the_units() -> None:
    found = one(readings(1, repeats=1), readings(2, repeats=1))
    assert (found.by, found.units) == ("sizes", 4)
    assert found.low is not None


def test_one_batch_has_no_interval_and_decides_nothing() -> None:
    found = one(values(10.0), values(20.0))
    assert (found.decision, found.change, found.low, found.high) == ("undecided", 1.0, None, None)


def test_only_what_both_measured_is_compared() -> None:
    found = one(readings(1), readings(2, repeats=2, sizes=(20, 40, 160)))
    assert [(size.size, size.pairs) for size in found.sizes] == [(20, 2), (40, 2)]
    assert compare({TIME: values(1.0)}, {IOPS: values(1.0)}, RULES) == []
    assert (
        compare({TIME: {(1, 1): Reading(1.0, None, 0.0)}}, {TIME: {(2, 1): Reading(1.0, None, 0.0)}}, RULES)
        == []
    )


def test_equal_runs_without_any_spread_are_the_same() -> None:
    found = one(values(1.0, 2.0, 4.0), values(1.0, 2.0, 4.0))
    assert (found.decision, found.change, found.low, found.high) == ("same", 0.0, 0.0, 0.0)


def test_no_interval_is_narrower_than_the_observers_error() -> None:
    sharp, blurred = ({(n, 1): Reading(10.0, None, error) for n in SIZES} for error in (0.0, 5.0))
    found = one(blurred, sharp)
    assert found.high is not None
    assert found.high > 0.05
    assert found.decision == "undecided"


@pytest.mark.parametrize("repeats", [1, 3])
def test_an_error_bound_that_is_not_known_is_no_zero(repeats: int) -> None:
    unknown = {unit: reading._replace(error=None) for unit, reading in readings(1, repeats).items()}
    slow = readings(2, repeats, factor=1.3)
    found = one({**readings(1, repeats), (10, 1): unknown[10, 1]}, slow)
    assert (found.decision, found.low, found.high, found.bounded) == ("undecided", None, None, False)
    assert found.change == pytest.approx(0.3, abs=0.05)
    assert one(readings(1, repeats), slow).decision == "regression"


def test_a_limit_proves_a_regression_whatever_the_error_bounds() -> None:
    usual = {unit: reading._replace(error=None) for unit, reading in values(5.0, 9.0, 17.0).items()}
    assert one(usual, values(5.0, 9.0, None)).decision == "regression"


def test_more_metrics_widen_every_interval() -> None:
    alone = one(readings(1), readings(2))
    others = {Metric(f"m{i}", "percentile", "s"): readings(i) for i in range(9)}
    among = compare({TIME: readings(1), **others}, {TIME: readings(2), **others}, RULES)[0]
    assert alone.high is not None
    assert among.high is not None
    assert among.high > alone.high


CENSORED: dict[str, tuple[dict[Unit, Reading], dict[Unit, Reading], Decision]] = {
    "the run alone": (values(5.0, 9.0, 17.0), values(5.0, 9.0, None), "regression"),
    "the baseline alone": (values(5.0, 9.0, None), values(5.0, 9.0, 17.0), "improvement"),
    "both": (values(None, None), values(None, None), "beyond the limit"),
    "both at one size": (values(5.0, 9.0, None), values(5.0, 9.0, None), "undecided"),
    "a limit that is not known": (values(5.0, 9.0, 17.0), values(5.0, 9.0, None, limit=None), "undecided"),
    "a value near the limit": (values(5.0, 9.0, 7100.0), values(5.0, 9.0, None), "undecided"),
    "a limit below the baseline": (values(5.0, 9.0, 17.0), values(5.0, 9.0, None, limit=10.0), "undecided"),
}


@pytest.mark.parametrize(("baseline", "run", "decision"), CENSORED.values(), ids=CENSORED)
def test_beyond_the_limit_no_number_is_made_up(
    baseline: dict[Unit, Reading], run: dict[Unit, Reading], decision: Decision
) -> None:
    found = one(baseline, run)
    assert found.decision == decision
    assert all(size.change is None for size in found.censored)
    assert len(found.censored) >= 1


def test_a_value_beyond_the_limit_says_how_much_worse_at_least() -> None:
    (size,) = one(values(5.0, 72.0), values(5.0, None)).censored
    assert (size.run, size.run_limit) == (None, LIMIT_S)
    assert size.baseline == pytest.approx(72.0)
    assert size.bound == pytest.approx(99.0)


def test_a_size_beyond_the_limit_takes_no_part_in_the_change() -> None:
    found = one(values(5.0, 10.0, 17.0), values(5.5, 11.0, None))
    assert found.change == pytest.approx(0.1)


@given(st.integers(0, 10**6), st.integers(1, 4), st.floats(0.7, 1.4))
def test_the_other_way_round_it_is_the_inverse(seed: int, repeats: int, factor: float) -> None:
    a, b = readings(seed, repeats), readings(seed + 1, repeats, factor)
    there, back = one(a, b), one(b, a)
    assert there.change is not None
    assert back.change is not None
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1)
    assert (there.decision == "regression") == (back.decision == "improvement")


def alarms_of(pairs: int, repeats: int, threshold: float) -> int:
    """Of how many A/A pairs of four metrics any is called worse or better."""
    rules, found = Rules(0.95, dict.fromkeys(THRESHOLDS, threshold)), 0
    for pair in range(pairs):
        before, now = (
            {
                Metric(f"m{i}", "end_to_end", "s"): readings(pair * 100 + i * 2 + side, repeats, noise=0.05)
                for i in range(4)
            }
            for side in (0, 1)
        )
        found += any(each.decision in {"regression", "improvement"} for each in compare(before, now, rules))
    return found


@pytest.mark.parametrize("repeats", [1, 3])
def test_intervals_hold_together_as_often_as_they_say(repeats: int) -> None:
    """Without a threshold 5 % of the pairs alarm; 10 % of 100 are what chance allows for."""
    assert alarms_of(100, repeats, 1e-9) <= 10


@pytest.mark.parametrize("repeats", [1, 3])
def test_with_the_threshold_a_a_pairs_raise_at_most_five_percent_false_alarms(repeats: int) -> None:
    assert alarms_of(100, repeats, 0.05) <= 5


def test_ten_percent_is_found_in_nine_of_ten_pairs_with_three_repeats() -> None:
    others = {Metric(f"m{i}", "end_to_end", "s"): readings(i) for i in range(7)}
    found = [
        compare(
            {TIME: readings(2 * pair), **others}, {TIME: readings(2 * pair + 1, factor=1.09), **others}, RULES
        )[0]
        for pair in range(100)
    ]
    assert sum(each.decision == "regression" for each in found) >= 90


@pytest.mark.parametrize("second", [3.0, 1e6])
def test_two_batches_that_differ_much_have_no_interval_rather_than_one_of_a_million_percent(
    second: float,
) -> None:
    found = one(values(10.0, 20.0), values(11.0, 20.0 * second))
    assert (found.low, found.high, found.units) == (None, None, 2)
    assert (found.change is not None, found.decision) == (True, "undecided")
