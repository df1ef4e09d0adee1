"""Histograms are merged exactly, whatever the order; their percentiles are those of the samples."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.analysis.histograms import (
    EMPTY,
    Bin,
    Histogram,
    Pool,
    exceedance_bound,
    fio_rank,
    merge,
    percentile_bin,
    percentile_bins,
    pool,
    running_max,
    total,
)
from tasks.analysis.percentiles import nearest_rank

WIDTH = 10
SAMPLES = st.lists(st.integers(0, 500), max_size=80)
A_FEW = settings(max_examples=40, deadline=None)
QUANTILES = st.sampled_from([0.0, 1.0, 50.0, 95.0, 99.0, 99.9, 100.0])


def histogram(samples: list[int]) -> Histogram:
    lowers = sorted({each // WIDTH * WIDTH for each in samples})
    return tuple(
        Bin(lower, lower + WIDTH, sum(each // WIDTH * WIDTH == lower for each in samples)) for lower in lowers
    )


def pooled(samples: list[int]) -> Pool:
    if not samples:
        return EMPTY
    n = len(samples)
    return Pool(n, min(samples), max(samples), sum(samples) / n, 0, histogram(samples))


@A_FEW
@given(SAMPLES, SAMPLES, SAMPLES)
def test_merging_is_associative_and_keeps_no_order(a: list[int], b: list[int], c: list[int]) -> None:
    x, y, z = histogram(a), histogram(b), histogram(c)
    assert (
        merge([merge([x, y]), z]) == merge([x, merge([y, z])]) == merge([z, y, x]) == histogram([*a, *b, *c])
    )


@A_FEW
@given(st.lists(SAMPLES, max_size=5))
def test_a_merge_loses_no_sample(parts: list[list[int]]) -> None:
    assert total(merge(histogram(part) for part in parts)) == sum(map(len, parts))


@A_FEW
@given(st.lists(SAMPLES, min_size=1, max_size=5), QUANTILES)
def test_a_percentile_of_merged_bins_holds_that_of_the_pooled_samples(
    parts: list[list[int]], q: float
) -> None:
    samples = [each for part in parts for each in part]
    at = percentile_bin(merge(histogram(part) for part in parts), q)
    true = nearest_rank(samples, q)
    assert (at is None) == (true is None)
    assert at is None or true is None or at.lower_ns <= true < at.upper_ns


@A_FEW
@given(SAMPLES, st.integers(1, 50), QUANTILES)
def test_a_percentile_among_the_overflow_is_not_known(samples: list[int], overflow: int, q: float) -> None:
    at = percentile_bin(histogram(samples), q, overflow)
    true = nearest_rank([*samples, *[10**9] * overflow], q)
    assert true is not None
    assert (at is None) == (true == 10**9)


@A_FEW
@given(SAMPLES)
def test_percentiles_do_not_fall(samples: list[int]) -> None:
    found = percentile_bins(histogram(samples), [1, 50, 99, 100])
    assert found == sorted(found, key=lambda each: each or Bin(0, 1, 0))


@A_FEW
@given(st.lists(SAMPLES, max_size=5))
def test_a_pool_of_pools_is_the_pool_of_all_samples(parts: list[list[int]]) -> None:
    whole = pooled([each for part in parts for each in part])
    together = pool(pooled(part) for part in parts)
    assert together._replace(mean_ns=None) == whole._replace(mean_ns=None)
    assert together.mean_ns == (None if whole.mean_ns is None else pytest.approx(whole.mean_ns))


def test_what_one_source_does_not_know_is_not_known_of_all() -> None:
    known, unknown = Pool(2, 5, 7, 6.0, 0, (Bin(0, 10, 2),)), Pool(1, None, 9, None, 0, (Bin(0, 10, 1),))
    assert pool([known, unknown, EMPTY]) == Pool(3, None, 9, None, 0, (Bin(0, 10, 3),))


@pytest.mark.parametrize(
    "bins",
    [
        [(Bin(0, 10, 1),), (Bin(5, 15, 1),)],
        [(Bin(0, 10, 1),), (Bin(0, 20, 1),)],
        [(Bin(0, 10, -1),)],
        [(Bin(10, 10, 1),)],
    ],
)
def test_histograms_of_different_layouts_are_not_merged(bins: list[Histogram]) -> None:
    with pytest.raises(ValueError, match=r"layouts|not a bin"):
        merge(bins)


@A_FEW
@given(st.integers(1, 10**7), st.sampled_from([1.0, 20.0, 50.0, 90.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0]))
def test_fios_rank_is_the_nearest_rank_or_the_next(n: int, q: float) -> None:
    exact = max(1, ceil(Fraction(str(q)) * n / 100))
    assert fio_rank(n, q) in (exact, exact + 1)
    assert fio_rank(n, q) == exact or Fraction(str(q)) * n % 100 == 0


def test_fio_takes_the_999_per_mille_of_1000_at_rank_1000() -> None:
    assert fio_rank(1000, 99.9) == 1000
    assert fio_rank(1000, 99.0) == 990


def test_the_running_maximum_never_falls_and_passes_over_gaps() -> None:
    assert running_max([None, 3, None, 2, 9]) == [None, 3, 3, 3, 9]


def test_samples_without_an_exceedance_bound_its_rate_at_3_over_n() -> None:
    assert exceedance_bound(259_200_000) == pytest.approx(1.157e-8, rel=1e-3)
    assert exceedance_bound(0) is None
