"""The event loop on virtual time: asyncio's own primitives work on it, and it never waits."""

import asyncio
import time
from typing import Any

import pytest

from infra.cluster.virtual.loop import EPOCH, Deadlock, VirtualClock, VirtualLoop, new_loop
from tests.unit.virtual.conftest import RunVirtual


def test_a_day_passes_in_no_time(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> int:
        await asyncio.sleep(86_400)
        return loop.now_ns

    began = time.monotonic()
    assert run_virtual(body) == 86_400 * 10**9
    assert time.monotonic() - began < 2.0


def test_timers_of_one_moment_fire_in_the_order_in_which_they_were_made(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> list[int]:
        fired: list[int] = []
        for number in range(50):
            if number % 2:
                loop.call_at_ns(5_000_000_000, fired.append, number)
            else:
                loop.call_later(5.0, fired.append, number)
        await loop.wake_at(5_000_000_000)
        await asyncio.sleep(0)
        return fired

    assert run_virtual(body) == list(range(50))


def test_a_timer_in_the_past_fires_now(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> int:
        await asyncio.sleep(10)
        reached: asyncio.Future[int] = loop.create_future()
        loop.call_at(3.0, lambda: reached.set_result(loop.now_ns))
        return await reached

    assert run_virtual(body) == 10 * 10**9


def test_a_cancelled_timer_does_not_fire(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> list[str]:
        fired: list[str] = []
        loop.call_later(1.0, fired.append, "cancelled").cancel()
        loop.call_later(2.0, fired.append, "kept")
        await asyncio.sleep(3)
        return fired

    assert run_virtual(body) == ["kept"]


def test_wait_for_times_out_at_its_moment_and_cancels(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> tuple[float, bool]:
        task = loop.create_task(asyncio.sleep(100))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(task, 2.5)
        return loop.time(), task.cancelled()

    assert run_virtual(body) == (2.5, True)


def test_timeout_leaves_what_is_in_time_alone(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> float:
        async with asyncio.timeout(10):
            await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.sleep(11)
        return loop.time()

    assert run_virtual(body) == 11.0


def test_a_task_group_cancels_its_siblings(run_virtual: RunVirtual[Any]) -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("one of them")

    async def body(loop: VirtualLoop) -> tuple[float, bool]:
        siblings: list[asyncio.Task[None]] = []

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                siblings.append(group.create_task(asyncio.sleep(100)))
                group.create_task(fails())

        with pytest.raises(ExceptionGroup):
            await together()
        return loop.time(), siblings[0].cancelled()

    assert run_virtual(body) == (1.0, True)


def test_gather_keeps_order_and_a_queue_hands_over(run_virtual: RunVirtual[Any]) -> None:
    async def after(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async def body(loop: VirtualLoop) -> tuple[list[float], list[int]]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)

        producer = loop.create_task(produce())
        taken = [await queue.get() for _ in range(5)]
        await producer
        return list(await asyncio.gather(after(3), after(1), after(2))), taken

    assert run_virtual(body) == ([3, 1, 2], [0, 1, 2, 3, 4])


def test_cancelling_a_sleeper_runs_its_clean_up_now(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> list[float]:
        moments: list[float] = []

        async def sleeper() -> None:
            try:
                await VirtualClock(loop).sleep(100)
            finally:
                moments.append(loop.time())

        task = loop.create_task(sleeper())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return moments

    assert run_virtual(body) == [1.0]


def test_a_deadlock_names_who_waits() -> None:
    loop = new_loop()

    async def body() -> None:
        await asyncio.sleep(7)
        waits = loop.create_task(asyncio.Event().wait(), name="kubelet of worker-007")
        await waits

    task = loop.create_task(body(), name="the stage")
    with pytest.raises(Deadlock, match=r"virtual time 7\.000 s.*kubelet of worker-007, the stage"):
        loop.run_until_complete(task)
    for each in asyncio.all_tasks(loop):
        each.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


def test_an_error_nobody_waits_for_ends_the_run(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> None:
        def fails() -> None:
            raise ValueError("a bug of the model")

        loop.call_later(1.0, fails)
        await asyncio.sleep(5)

    with pytest.raises(ValueError, match="a bug of the model"):
        run_virtual(body)


def test_half_read_generators_are_closed(run_virtual: RunVirtual[Any]) -> None:
    closed: list[bool] = []

    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    async def body(_: VirtualLoop) -> None:
        async for _number in numbers():
            break

    run_virtual(body)
    assert closed == [True]


def test_wall_time_is_the_fixed_epoch_plus_virtual_time(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> float:
        clock = VirtualClock(loop)
        await clock.sleep(1.5)
        await clock.sleep(-3)
        assert clock.now_ns() == 1_500_000_000
        return (clock.wall() - EPOCH).total_seconds()

    assert run_virtual(body) == 1.5
