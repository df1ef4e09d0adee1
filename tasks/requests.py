"""Requests: those of a batch, released together or at a rate, and single ones that must succeed.

A request that was not carried out (429, 5xx) is sent again, its clock not reset and `attempts`
counted. One whose outcome is not known is read back before anything is sent again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from infra.clock import Clock
from infra.cluster.port import Object, ref_of
from infra.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    StageError,
    Throttled,
    Unavailable,
    Unknown,
)
from infra.manifests import NONCE, RUN_LABEL
from infra.world import World
from tasks.batch import NS, Batch
from tasks.observing import Observers

T = TypeVar("T")
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
SETUP_LIMIT_S = 300.0
"""How long a single request of a set-up is tried again."""
DELETED = "the VirtualMachine was deleted by somebody else"


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with each VM of a batch.

    `send` sends the request of VM i; `landed` reads back whether it was carried out, after an
    answer that leaves it open. `rate_per_s` None: all at once.
    """

    send: Callable[[int], Awaitable[None]]
    landed: Callable[[int], Awaitable[bool]]
    rate_per_s: float | None
    limit_s: float
    acknowledged: Callable[[int, int], None] | None = None


async def drive(world: World, batch: Batch, order: Order, observers: Observers) -> None:
    """Release a batch and wait until every VM is decided, or the limit has passed.

    VMs that are open then are timeouts. Observers must be synced already.

    Raises:
        StageError: an observer could not go on.
    """
    batch.release(world.clock)
    if batch.cell is not None:
        world.runtime.measures(batch.stage, *batch.cell)
    working = asyncio.create_task(_work(world, batch, order), name=f"{batch.stage} batch")
    broken = observers.broken
    try:
        await asyncio.wait({working, broken}, timeout=order.limit_s, return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            await broken
        if working.done():
            await working
    finally:
        await _stop(working)
        batch.journal.told(world.runtime.counted(batch.released_ns, world.clock.now_ns()))
        if batch.cell is not None:
            world.runtime.measured()
    batch.close("timeout")


async def _work(world: World, batch: Batch, order: Order) -> None:
    requests: list[asyncio.Task[None]] = []
    try:
        async for i in _paced(world, batch, order.rate_per_s):
            requests.append(asyncio.create_task(_request(world, batch, order, i), name=batch.names[i]))
        await asyncio.gather(*requests)
        await batch.finished
    finally:
        await _stop(*requests)


async def _stop(*tasks: asyncio.Task[None]) -> None:
    """Cancel and wait, so that nothing is sent after this returns."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


async def _paced(world: World, batch: Batch, rate_per_s: float | None) -> AsyncIterator[int]:
    """VM after VM as each is due; being late never shifts the ones after."""
    for i in range(len(batch)):
        if rate_per_s is not None:
            due_ns = batch.released_ns + round(i * NS / rate_per_s)
            wait_s = (due_ns - world.clock.now_ns()) / NS
            if wait_s > 0:
                await world.clock.sleep(wait_s)
        yield i


async def _request(world: World, batch: Batch, order: Order, i: int) -> None:
    if not batch.state[i]:
        batch.requested[i] = world.clock.now_ns()
    while not batch.state[i]:
        pause_s = await _attempt(world.clock, batch, order, i)
        if pause_s is None:
            break
        await world.clock.sleep(pause_s)
    else:
        return
    ns = world.clock.now_ns()
    batch.seen["acknowledged"][i] = batch.not_yet["acknowledged"][i] = ns
    if order.acknowledged is not None:
        order.acknowledged(i, ns)


async def _attempt(clock: Clock, batch: Batch, order: Order, i: int) -> float | None:
    """Send once: None when it was carried out, else the pause; a refusal for good decides the VM."""
    sent_ns = clock.now_ns()
    batch.attempts[i] += 1
    try:
        await order.send(i)
    except Throttled as error:
        batch.throttled += 1
        pause_s = max(error.retry_after_s, _pause_s(batch, i))
        now_ns = clock.now_ns()
        batch.journal.count("http_429", now_ns)
        batch.journal.count("throttled_s", now_ns, pause_s)
        return pause_s
    except Unavailable:
        batch.unavailable += 1
        batch.journal.failed(clock.now_ns())
        return _pause_s(batch, i)
    except (Unknown, Conflict, AlreadyExists) as error:
        if isinstance(error, Unknown):
            batch.journal.silent(sent_ns)
        return None if await _landed(batch, order, i, error) else _pause_s(batch, i)
    except ClusterError as error:
        batch.journal.refused += isinstance(error, Forbidden)
        batch.end(i, "failed", str(error))
        return 0.0
    batch.journal.answered(clock.now_ns())
    return None


async def _landed(batch: Batch, order: Order, i: int, error: ClusterError) -> bool:
    """Read back what became of a request; a plain refusal decides the VM."""
    try:
        if await order.landed(i):
            return True
    except (Throttled, Unavailable, Unknown):
        return False
    except ClusterError as refusal:
        batch.end(i, "failed", str(refusal))
    if not isinstance(error, Unknown):
        batch.end(i, "failed", str(error))
    return False


def _pause_s(batch: Batch, i: int) -> float:
    """Exponential and jittered; the seed is the VM's name, so that runs on virtual time are equal."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(batch.attempts[i] - 1, 16))
    return longest * Random(f"{batch.names[i]}/{batch.attempts[i]}").uniform(0.5, 1.0)


async def resent(world: World, call: Callable[[], Awaitable[T]]) -> T:
    """A single request of a set-up, sent again while the server cannot.

    Raises:
        StageError: not carried out within five minutes.
    """
    start_ns = world.clock.now_ns()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except (Throttled, Unavailable, Unknown, Gone) as error:
            if world.clock.now_ns() - start_ns > SETUP_LIMIT_S * NS:
                raise StageError(f"not done within {SETUP_LIMIT_S:g} s: {error}") from error
        await world.clock.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 2)


def is_marked(world: World, obj: Object) -> bool:
    """Whether an object carries this run's label and its nonce."""
    meta = obj["metadata"]
    label = (meta.get("labels") or {}).get(RUN_LABEL)
    return label == world.run_id and (meta.get("annotations") or {}).get(NONCE) == world.nonce


async def create_ours(world: World, manifest: Object) -> Object:
    """Create an object of a set-up, or find that it is there already.

    Raises:
        StageError: an object of that name exists and is not this run's.
    """
    try:
        return await resent(world, lambda: world.cluster.create(manifest))
    except AlreadyExists:
        found = await resent(world, lambda: world.cluster.get(ref_of(manifest)))
    if not is_marked(world, found):
        raise StageError(
            f"{ref_of(manifest)} exists and is not of run {world.run_id}: choose another namespace"
        )
    return found
