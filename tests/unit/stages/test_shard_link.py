"""What a run asks of a process that takes a share, from another thread than the share's."""

import asyncio
import time

from infra.clock import MonotonicClock
from tasks import shard_link
from tasks.brakes import Brake
from tasks.shard_link import SILENCE_S, Link, linked
from tasks.thresholds import Brakes

CLOCK = MonotonicClock()


def test_a_share_is_released_at_its_moment_and_says_how_late_that_was() -> None:
    link = Link(0, (0,))

    async def released() -> int:
        with linked("a", link):
            turn = asyncio.create_task(link.turn(CLOCK, None))
            await asyncio.sleep(0.05)
            assert shard_link.look("a").is_ready
            assert not turn.done()
            shard_link.release("a", CLOCK.now_ns() + 50_000_000)
            at_ns = await turn
        assert CLOCK.now_ns() >= at_ns
        return at_ns

    assert asyncio.run(released()) == link.release_ns
    assert link.late_ns >= 0


def test_the_brake_of_one_is_pulled_in_all() -> None:
    async def braked() -> str:
        first, second = Link(0, (0,), Brake(Brakes())), Link(1, (1,), Brake(Brakes()))
        with linked("a", first), linked("b", second):
            assert first.brake is not None
            first.brake.pull("node worker-1")
            shard_link.hold("b", shard_link.look("a").braked)
            assert second.obey()
        return second.brake.why if second.brake else ""

    assert asyncio.run(braked()) == "node worker-1"


def test_a_share_stops_when_it_is_told_and_when_nobody_asks_any_more() -> None:
    link = Link(0, (0,))
    with linked("a", link):
        assert link.obey()
        shard_link.stop("a")
        assert not link.obey()
    alone = Link(0, (0,), heard_s=time.monotonic() - SILENCE_S - 1)
    with linked("a", alone):
        assert not alone.obey()
        shard_link.look("a")
        assert alone.obey()


def test_a_share_that_is_over_is_not_ready_and_cannot_be_stopped() -> None:
    assert not shard_link.look("gone").is_ready
    shard_link.stop("gone")
    shard_link.hold("gone", "why")
