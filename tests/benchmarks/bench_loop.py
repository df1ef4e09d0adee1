"""The virtual loop against asyncio's stock loop: CPU of the same switches and timers.

The stock loop waits for its timers in real time, so only CPU is compared, never wall time. Delays are drawn
once and are the same for both, up to 1 ms; a stock loop that falls behind takes several timers in one turn,
which is to its advantage.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

from infra.cluster.virtual.loop import VirtualClock, VirtualLoop, new_loop
from tests.benchmarks.bench_figures import Figure, cpu_s, in_turns

TASKS = 1000
SWITCHES = 50
TIMERS = 30
LONGEST_S = 0.001
ROUNDS = 5
Sleep = Callable[[float], Awaitable[None]]
Work = Callable[[asyncio.AbstractEventLoop], None]


def loop_figures() -> list[Figure]:
    """Microseconds of CPU per switch and per timer."""
    delays_s = _delays_s()
    chains = partial(_chains, delays_s)
    ours, peer = partial(_virtual_sleeps, delays_s), partial(_sleeps, delays_s)
    return [
        _figure("switch (await sleep(0))", (_switches, _switches), SWITCHES),
        _figure("timer (chain of call_at)", (chains, chains), TIMERS),
        _figure("sleep of a task", (ours, peer), TIMERS),
    ]


def _figure(what: str, contenders: tuple[Work, Work], each: int) -> Figure:
    ours, peer = contenders
    count = TASKS * each
    mine, theirs = in_turns(partial(_timed, new_loop, ours), partial(_timed, _stock, peer), ROUNDS)
    per_us = 1e6 / count
    n = f"n {ROUNDS} x {count:,} in {TASKS:,} tasks, minimum of CPU"
    return Figure(f"loop: {what}", min(mine) * per_us, "us", min(theirs) * per_us, "stock asyncio", n, 1.0)


def _timed(make: Callable[[], asyncio.AbstractEventLoop], work: Work) -> float:
    loop = make()
    try:
        return cpu_s(lambda: work(loop))
    finally:
        loop.close()


def _stock() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop()


def _delays_s() -> Sequence[Sequence[float]]:
    draw = Random(7)
    return [[draw.uniform(0, LONGEST_S) for _ in range(TIMERS)] for _ in range(TASKS)]


def _switches(loop: asyncio.AbstractEventLoop) -> None:
    async def switch() -> None:
        for _ in range(SWITCHES):
            await asyncio.sleep(0)

    loop.run_until_complete(_all([switch for _ in range(TASKS)]))


def _chains(delays_s: Sequence[Sequence[float]], loop: asyncio.AbstractEventLoop) -> None:
    done = loop.create_future()
    left = [len(delays_s)]

    def fire(rest: list[float]) -> None:
        if rest:
            loop.call_at(loop.time() + rest.pop(), fire, rest)
            return
        left[0] -= 1
        if not left[0]:
            done.set_result(None)

    for chain in delays_s:
        fire(list(chain))
    loop.run_until_complete(done)


def _sleeps(delays_s: Sequence[Sequence[float]], loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(_all([partial(_sleeper, asyncio.sleep, chain) for chain in delays_s]))


def _virtual_sleeps(delays_s: Sequence[Sequence[float]], loop: asyncio.AbstractEventLoop) -> None:
    assert isinstance(loop, VirtualLoop)
    sleep = VirtualClock(loop).sleep
    loop.run_until_complete(_all([partial(_sleeper, sleep, chain) for chain in delays_s]))


async def _sleeper(sleep: Sleep, delays_s: Sequence[float]) -> None:
    for delay_s in delays_s:
        await sleep(delay_s)


async def _all(work: Sequence[Callable[[], Awaitable[None]]]) -> None:
    await asyncio.gather(*(each() for each in work))
