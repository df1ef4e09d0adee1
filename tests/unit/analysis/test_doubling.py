import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.doubling import Bracket, Point, bend, exponent, growths

SIZES = (100, 200, 400, 800, 1600, 3200, 6000)
STUDY_BOOT_S = (34.0, 52.0, 90.0, 166.0, 330.0, 800.0, 1700.0)


def points(times: tuple[float, ...]) -> list[Point]:
    return [Point(n, t) for n, t in zip(SIZES, times, strict=False)]


def test_6000_after_3200_is_measured_against_1_875() -> None:
    last = growths([Point(3200, 32.0), Point(6000, 60.0)])[0]
    assert (last.ratio, last.linear) == (1.875, 1.875)
    assert last.excess == pytest.approx(0.0)


def test_the_bend_of_a_study_like_curve_lies_between_1600_and_3200() -> None:
    assert bend(points(STUDY_BOOT_S)) == Bracket(1600, 3200)


def test_one_slow_batch_that_later_ones_do_not_confirm_is_no_bend() -> None:
    assert bend(points((10.0, 26.0, 40.0, 80.0, 160.0))) is None


def test_a_batch_beyond_its_limit_proves_a_bend_when_the_limit_does() -> None:
    assert bend([Point(100, 10.0), Point(200, None, 30.0)]) == Bracket(100, 200)
    assert growths([Point(100, 10.0), Point(200, None, 30.0)])[0].lower_bound


def test_growth_from_a_batch_beyond_its_limit_is_not_known() -> None:
    assert growths([Point(100, None, 60.0), Point(200, 70.0)])[0].ratio is None
    assert bend([Point(100, None, 60.0), Point(200, 70.0)]) is None


def test_the_exponent_of_a_straight_line_is_one() -> None:
    assert exponent(points((1.0, 2.0, 4.0, 8.0))) == pytest.approx(1.0)
    assert exponent([Point(100, 3.0)]) is None


@given(st.floats(0.001, 10), st.floats(0, 1000))
def test_a_line_with_any_fixed_part_never_bends(per_vm_s: float, fixed_s: float) -> None:
    assert bend([Point(n, fixed_s + per_vm_s * n) for n in SIZES]) is None


@given(st.floats(0.001, 10), st.sampled_from(SIZES[:-2]), st.floats(1.3, 5))
def test_a_line_that_gets_steeper_for_good_bends_where_it_does(
    per_vm_s: float, last: int, factor: float
) -> None:
    curve = [Point(n, per_vm_s * n * (factor if n > last else 1)) for n in SIZES]
    assert bend(curve) == Bracket(last, SIZES[SIZES.index(last) + 1])


@given(st.permutations(points(STUDY_BOOT_S)))
def test_the_order_of_batches_does_not_matter(shuffled: list[Point]) -> None:
    assert bend(shuffled) == Bracket(1600, 3200)


@given(st.floats(0.01, 10), st.lists(st.floats(0, 1), min_size=len(SIZES), max_size=len(SIZES)))
def test_no_line_bends_wherever_its_times_lie_within_their_error_bounds(
    per_vm_s: float, shares: list[float]
) -> None:
    """The observer sees each batch late by up to its bound; what it saw alone may well look bent."""
    error_s = 150 * per_vm_s
    seen = [
        Point(n, per_vm_s * n + share * error_s, None, error_s)
        for n, share in zip(SIZES, shares, strict=True)
    ]
    assert bend(seen) is None


def test_a_growth_knows_what_the_error_bounds_allow() -> None:
    step = growths([Point(100, 10.0, None, 2.0), Point(200, 20.0, None, 4.0)])[0]
    assert (step.least, step.most, step.side()) == (1.6, 2.5, None)
    assert growths([Point(100, 10.0, None, 0.0), Point(200, 20.0, None, 0.0)])[0].side() == "within"
    assert growths([Point(100, 10.0, None, 0.1), Point(200, 23.0, None, 0.1)])[0].side() == "above"
