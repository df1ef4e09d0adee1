"""What a run asks of a process that takes a share, from another thread than the share's."""

import asyncio
import time

from infra.clock import MonotonicClock
from tasks.brakes import Brake
from tasks.shards import link
from tasks.shards.link import SILENCE_S, Link, linked
from tasks.thresholds import Brakes

CLOCK = MonotonicClock()


def test_a_share_is_released_at_its_moment_and_says_how_late_that_was() -> None:
    mine = Link(0, (0,))

    async def released() -> int:
        with linked("a", mine):
            turn = asyncio.create_task(mine.turn(CLOCK, None))
            await asyncio.sleep(0.05)
            assert link.look("a").is_ready
            assert not turn.done()
            link.release("a", CLOCK.now_ns() + 50_000_000)
            at_ns = await turn
        assert CLOCK.now_ns() >= at_ns
        return at_ns

    assert asyncio.run(released()) == mine.release_ns
    assert mine.late_ns >= 0


def test_the_brake_of_one_is_pulled_in_all() -> None:
    async def braked() -> str:
        first, second = Link(0, (0,), Brake(Brakes())), Link(1, (1,), Brake(Brakes()))
        with linked("a", first), linked("b", second):
            assert first.brake is not None
            first.brake.pull("node worker-1")
            link.hold("b", link.look("a").braked)
            assert second.obey()
        return second.brake.why if second.brake else ""

    assert asyncio.run(braked()) == "node worker-1"


def test_a_share_stops_when_it_is_told_and_when_nobody_asks_any_more() -> None:
    mine = Link(0, (0,))
    with linked("a", mine):
        assert mine.obey()
        link.stop("a")
        assert not mine.obey()
    alone = Link(0, (0,), heard_s=time.monotonic() - SILENCE_S - 1)
    with linked("a", alone):
        assert not alone.obey()
        link.look("a")
        assert alone.obey()


def test_a_share_that_is_over_is_not_ready_and_cannot_be_stopped() -> None:
    assert not link.look("gone").is_ready
    link.stop("gone")
    link.hold("gone", "why")
