"""Shapes of the Ceph model come from its mechanisms: each goes when its mechanism does."""

import numpy as np
import pytest

from infra.cluster.virtual.ceph import Images, Solution, Work, missed, solve, solve_parts
from infra.cluster.virtual.ceph_latency import GRID_US, mean_us
from infra.cluster.virtual.storage import Ceph
from tasks.profile import Io

DATASET = 2100 * 5 * 1024**2
GIB = 1024**3
UNLUCKY = 41
"""A seed with which the busiest OSDs of the first parts are not busier at 129 images than at 258."""


def fleet(ceph: Ceph, vms: int, work: Work) -> Solution:
    images = Images(ceph, 7)
    return solve(ceph, [work] * vms, images.places([f"disk-{i}" for i in range(vms)]))


def load(pattern: str, vms: int, kib: int = 4, depth: int | None = None) -> Work:
    per_s = 10 * GIB / vms / (kib * 1024)
    return Work(pattern, kib * 1024, per_s, depth or max(1, int(per_s * 2e-3) + 1), 0.0, DATASET)


def idle(pattern: str, kib: int = 4) -> Work:
    return Work(pattern, kib * 1024, 0.0, 1, 30_000.0, DATASET)


def percentile(solution: Solution, q: float) -> float:
    whole = np.average(solution.shares, axis=0, weights=solution.per_s)
    return float(GRID_US[np.searchsorted(np.cumsum(whole), q)])


def test_nobody_gets_more_than_was_asked_and_reads_get_all_of_it() -> None:
    found = fleet(Ceph(), 129, load("read", 129))
    assert np.allclose(found.per_s, 10 * GIB / 129 / 4096)


@pytest.mark.parametrize("pattern", ["read", "write"])
def test_littles_law_holds_for_every_client(pattern: str) -> None:
    work = load(pattern, 258)
    found = fleet(Ceph(), 258, work)
    assert np.all(found.per_s * mean_us(found.shares) / 1e6 <= work.depth * (1 + 1e-9))


def test_shares_are_distributions() -> None:
    found = fleet(Ceph(), 20, load("write", 20))
    assert np.allclose(found.shares.sum(axis=1), 1.0)
    assert np.all(found.shares >= 0)


def test_three_replicas_cost_latency_and_one_costs_less() -> None:
    three, one = (fleet(Ceph(replicas=n), 516, load("write", 516, 64)) for n in (3, 1))
    assert percentile(three, 0.5) > percentile(one, 0.5)
    assert percentile(three, 0.99) > 1.5 * percentile(one, 0.99)


def test_few_images_have_longer_tails_and_an_even_spread_has_not() -> None:
    def ratio(ceph: Ceph) -> float:
        few, more = (percentile(fleet(ceph, n, load("write", n, 64)), 0.99) for n in (129, 258))
        return few / more

    assert ratio(Ceph()) >= 1.3
    assert ratio(Ceph(osds_per_image=288)) < 1.1


def ratio_of_tails(seed: int, kib: int, parts: int) -> float:
    """p99 of writes at 129 images over that at 258."""
    ceph, images = Ceph(), Images(Ceph(), seed)

    def p99(vms: int) -> float:
        names = [f"disk-{i}" for i in range(vms)]
        places = [images.places(names, part) for part in range(parts)]
        return percentile(solve_parts(ceph, [load("write", vms, kib)] * vms, places), 0.99)

    return p99(129) / p99(258)


@pytest.mark.slow
@pytest.mark.parametrize("kib", [4, 64])
def test_few_images_have_longer_tails_with_each_of_40_seeds(kib: int) -> None:
    parts = round(Io().run_s / Ceph().busy_part_s)
    assert min(ratio_of_tails(seed, kib, parts) for seed in range(1, 41)) >= 1.3


def test_a_busy_part_that_never_moves_leaves_the_tail_to_chance() -> None:
    still, moving = (ratio_of_tails(UNLUCKY, 64, parts) for parts in (1, 5))
    assert still < 1.3 <= moving


def test_a_population_whose_busy_parts_move_gets_the_mean_of_them() -> None:
    work, images = [load("write", 20)] * 20, Images(Ceph(), 7)
    places = [images.places([f"disk-{i}" for i in range(20)], part) for part in range(3)]
    whole = solve_parts(Ceph(), work, places)
    each = [solve(Ceph(), work, place) for place in places]
    assert np.allclose(whole.per_s, np.mean([one.per_s for one in each], axis=0))
    assert np.allclose(whole.shares.sum(axis=1), 1.0)
    assert not np.array_equal(places[0], places[1])


def test_reads_slow_down_when_the_data_outgrows_memory() -> None:
    def p50s(memory_gib: float) -> tuple[float, float]:
        ceph = Ceph(idle_reads="off", osd_memory_gib=memory_gib)
        small, large = (percentile(fleet(ceph, n, load("read", n, depth=4)), 0.5) for n in (129, 516))
        return small, large

    assert missed(Ceph(), 129 * DATASET) < missed(Ceph(), 516 * DATASET)
    small, large = p50s(8)
    assert small * 1.2 < large
    small, large = p50s(1000)
    assert small == large


@pytest.mark.parametrize("cause", ["wake-ups", "cold-caches"])
def test_idle_reads_are_slower_by_either_cause(cause: str) -> None:
    ceph = Ceph.model_validate({"idle_reads": cause})
    for vms in (129, 516):
        loaded, alone = fleet(ceph, vms, load("read", vms)), fleet(ceph, vms, idle("read"))
        assert percentile(loaded, 0.5) < percentile(alone, 0.5)


def test_without_a_cause_idle_reads_are_no_slower() -> None:
    ceph = Ceph(idle_reads="off")
    loaded, alone = fleet(ceph, 516, load("read", 516)), fleet(ceph, 516, idle("read"))
    assert percentile(loaded, 0.5) >= percentile(alone, 0.5)


def test_the_network_of_the_hosts_is_a_limit_for_all_together() -> None:
    narrow = Ceph(hosts=1, host_gib_per_s=1.0)
    found = fleet(narrow, 129, load("read", 129, 64))
    assert found.per_s.sum() * 64 * 1024 / GIB <= 1.0 + 1e-9


def test_the_same_seed_gives_the_same_places_whatever_was_asked_before() -> None:
    first, second = Images(Ceph(), 7), Images(Ceph(), 7)
    second.places(["z", "y"])
    assert np.array_equal(first.places(["a", "b"]), second.places(["a", "b"]))
    assert not np.array_equal(first.places(["a"]), Images(Ceph(), 8).places(["a"]))
