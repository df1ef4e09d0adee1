import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.placement import balance

counts = st.lists(st.integers(0, 500), min_size=1, max_size=200)


def test_two_four_six_by_hand() -> None:
    found = balance([2, 4, 6])
    assert found is not None
    assert (found.min, found.mean, found.max, found.spread, found.ideal_spread) == (2, 4.0, 6, 4, 0)
    assert found.cv == pytest.approx((8 / 3) ** 0.5 / 4)


def test_6000_on_129_nodes_cannot_be_even() -> None:
    found = balance([47] * 66 + [46] * 63)
    assert found is not None
    assert (found.vms, found.spread, found.ideal_spread) == (6000, 1, 1)


def test_no_nodes_have_no_balance_and_no_vms_no_cv() -> None:
    assert balance([]) is None
    assert balance([0, 0]).cv is None  # type: ignore[union-attr]


@given(counts)
def test_min_mean_max_are_ordered_and_no_placement_beats_the_ideal(vms: list[int]) -> None:
    found = balance(vms)
    assert found is not None
    assert found.min <= found.mean + 1e-9
    assert found.mean <= found.max + 1e-9
    assert found.spread >= found.ideal_spread


@given(counts, st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(vms: list[int], random: object) -> None:
    shuffled = list(vms)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = balance(vms), balance(shuffled)
    assert one is not None
    assert other is not None
    assert one.cv == pytest.approx(other.cv) if one.cv is not None else other.cv is None


@given(st.integers(1, 300), st.integers(1, 500))
def test_equal_counts_have_no_variation(nodes: int, vms: int) -> None:
    found = balance([vms] * nodes)
    assert found is not None
    assert found.cv == pytest.approx(0, abs=1e-12)
