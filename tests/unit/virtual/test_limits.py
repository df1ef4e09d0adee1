"""Token buckets, API workers, shared capacity, restore lock, attach overload: where queues come from."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.cluster.virtual.capacity import SharedCapacity
from infra.cluster.virtual.controllers.csi_restore_lock import RestoreLock
from infra.cluster.virtual.controllers.volume_attachment import Overload
from infra.cluster.virtual.limits import Servers, TokenBucket
from infra.cluster.virtual.loop import VirtualClock, VirtualLoop
from tests.unit.virtual.conftest import RunVirtual

SECOND = 10**9
gaps = st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=60)


def moments(steps: list[int]) -> list[int]:
    return [sum(steps[: number + 1]) for number in range(len(steps))]


@given(asked=gaps.map(moments), qps=st.integers(1, 50), burst=st.integers(1, 20))
def test_a_bucket_never_lets_out_more_than_it_may(asked: list[int], qps: int, burst: int) -> None:
    bucket = TokenBucket(qps, burst)
    leaves = [bucket.reserve(at) for at in asked]
    assert all(left >= at for left, at in zip(leaves, asked, strict=True))
    assert leaves == sorted(leaves)
    assert sum(bucket.waits.values()) == sum(left - at for left, at in zip(leaves, asked, strict=True))
    for first, began in enumerate(leaves):
        for last in range(first, len(leaves)):
            allowed = burst + (leaves[last] - began) * qps / SECOND
            assert last - first + 1 <= allowed + 1e-6 * len(leaves)


@given(asked=gaps.map(moments), qps=st.integers(1, 50))
def test_a_bucket_that_is_not_exceeded_holds_nothing_up(asked: list[int], qps: int) -> None:
    spread = [at + number * (SECOND // qps + 1) for number, at in enumerate(asked)]
    bucket = TokenBucket(qps, 1)
    assert [bucket.reserve(at) for at in spread] == spread


def test_a_burst_leaves_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(qps=5, burst=10)
    leaves = [bucket.reserve(0) / SECOND for _ in range(15)]
    assert leaves == pytest.approx([0.0] * 10 + [0.2, 0.4, 0.6, 0.8, 1.0])


def test_no_rate_is_no_limit() -> None:
    bucket = TokenBucket(0, 0)
    assert [bucket.reserve(7) for _ in range(1000)] == [7] * 1000


@given(asked=gaps.map(moments), count=st.integers(1, 4), service=st.integers(1, 5 * SECOND))
def test_workers_serve_in_order_and_no_more_at_once(asked: list[int], count: int, service: int) -> None:
    servers = Servers(count)
    done = [servers.reserve(at, service) for at in asked]
    assert done == sorted(done)
    assert all(end >= at + service for end, at in zip(done, asked, strict=True))
    for end in done:
        assert sum(other - service < end <= other for other in done) <= count


def test_a_free_worker_starts_at_once() -> None:
    servers = Servers(2)
    assert [servers.reserve(0, 10), servers.reserve(0, 10), servers.reserve(0, 10)] == [10, 10, 20]
    assert servers.reserve(100, 10) == 110


def shared(
    run_virtual: RunVirtual[Any], capacity: float, per_job: float, jobs: list[tuple[float, float]]
) -> list[float]:
    """When each job (start, amount) ends, in seconds."""

    async def body(loop: VirtualLoop) -> list[float]:
        resource = SharedCapacity(VirtualClock(loop), capacity, per_job)

        async def job(start: float, amount: float) -> float:
            await asyncio.sleep(start)
            await resource.use(amount)
            return loop.time()

        return list(await asyncio.gather(*(job(*each) for each in jobs)))

    ends: list[float] = run_virtual(body)
    return ends


@pytest.mark.parametrize(
    ("capacity", "per_job", "jobs", "ends"),
    [
        (4, 1, [(0, 10)], [10]),
        (4, 1, [(0, 10)] * 8, [20] * 8),
        (10, 10, [(0, 100), (0, 50)], [15, 10]),
        (10, 10, [(0, 100), (5, 25)], [12.5, 10]),
        (1, 1, [(0, 1), (0, 2), (0, 3)], [3, 5, 6]),
        (2, 1, [(0, 3), (0, 3), (1, 3)], [4, 4, 5]),
        (1, 1, [(0, 0)], [0]),
    ],
)
def test_shared_capacity_is_divided_equally(
    run_virtual: RunVirtual[Any],
    capacity: float,
    per_job: float,
    jobs: list[tuple[float, float]],
    ends: list[float],
) -> None:
    assert shared(run_virtual, capacity, per_job, jobs) == pytest.approx(ends, abs=1e-4)


def test_a_cancelled_job_leaves_its_share_to_the_others(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> float:
        resource = SharedCapacity(VirtualClock(loop), 1.0, 1.0)
        gone = loop.create_task(resource.use(10))
        stays = loop.create_task(resource.use(10))
        await asyncio.sleep(2)
        gone.cancel()
        await stays
        return loop.time()

    assert run_virtual(body) == pytest.approx(11.0, abs=1e-3)


def test_restores_of_one_snapshot_wait_for_each_other_and_of_two_do_not() -> None:
    lock = RestoreLock(retry_first_s=1.0, retry_max_s=300.0)
    assert [lock.reserve("a", 0, 0.5) for _ in range(3)] == [SECOND // 2, SECOND, 3 * SECOND // 2]
    assert lock.reserve("b", 0, 0.5) == SECOND // 2
    assert lock.reserve("a", 60 * SECOND, 0.5) == 60 * SECOND + SECOND // 2


def retries(first_s: float, longest_s: float, waited_s: float) -> int:
    """The attempts that find the lock taken, one by one."""
    at, delay, count = 0.0, first_s, 0
    while at < waited_s:
        count += 1
        at += delay
        delay = min(2 * delay, longest_s)
    return count


@given(waited_s=st.integers(0, 20_000))
def test_aborts_are_the_attempts_a_real_provisioner_would_make(waited_s: int) -> None:
    lock = RestoreLock(retry_first_s=1.0, retry_max_s=300.0)
    lock.reserve("a", 0, waited_s)
    lock.reserve("a", 0, 1.0)
    assert len(lock.aborted_ns) == retries(1.0, 300.0, waited_s)


def test_an_abort_is_booked_when_it_happens() -> None:
    lock = RestoreLock(retry_first_s=1.0, retry_max_s=4.0)
    lock.reserve("a", 0, 12.5)
    lock.reserve("a", SECOND, 1.0)
    assert lock.aborted_ns == [SECOND * at for at in (1, 2, 4, 8, 12)]


def test_the_attach_regime_turns_on_above_one_threshold_and_off_below_the_other() -> None:
    overload = Overload(above=1300, below=500, factor=2.0)
    told = [(n, overload.slowdown(n)) for n in (400, 1300, 1301, 1000, 500, 499, 1000, 1300, 1301)]
    slow = [n for (n, factor), _ in pairwise([*told, (0, 0.0)]) if factor == 2.0]
    assert [factor for _, factor in told] == [1, 1, 2, 2, 2, 1, 1, 1, 2]
    assert slow == [1301, 1000, 500, 1301]
