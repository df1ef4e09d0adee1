"""Requests: those of a batch, released together or at a rate, and single ones that must succeed.

A request that was not carried out (429, 5xx) is sent again, its clock not reset and `attempts`
counted. One whose outcome is not known is read back before anything is sent again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from infra.clock import Clock
from infra.cluster.port import Object, departing, ref_of
from infra.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Gone,
    NotFound,
    StageError,
    Throttled,
    Unavailable,
    Unknown,
)
from infra.manifests import NONCE, RUN_LABEL
from infra.world import World
from tasks.batch import NS, Batch
from tasks.brakes import Brake, Braked
from tasks.observing import Observers

T = TypeVar("T")
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
SETUP_LIMIT_S = 300.0
"""How long a single request of a set-up is tried again."""
LOGIN_PATIENCE_S = 120.0
"""How long a request is sent again to a server that does not believe who we are (any more)."""
DELETED = "the VirtualMachine was deleted by somebody else"


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with each VM of a batch.

    `send` sends the request of VM i; `landed` reads back whether it was carried out, after an
    answer that leaves it open. `rate_per_s` None: all at once. `missing` says which VMs of a batch
    that needs them do not exist (any more); None: the batch makes them. `brake` may stop the issuing.
    """

    send: Callable[[int], Awaitable[None]]
    landed: Callable[[int], Awaitable[bool]]
    rate_per_s: float | None
    limit_s: float
    acknowledged: Callable[[int, int], None] | None = None
    missing: Callable[[], Awaitable[list[int]]] | None = None
    brake: Brake | None = None


async def drive(world: World, batch: Batch, order: Order, observers: Observers) -> None:
    """Release a batch and wait until every VM is decided, or the limit has passed.

    VMs that are open then are timeouts. Observers must be synced already.

    Raises:
        StageError: an observer could not go on.
    """
    batch.release(world.clock, await world.shard.turn(world.clock, order.brake) if world.shard else None)
    if batch.cell is not None:
        world.runtime.measures(batch.stage, *batch.cell)
    working = asyncio.create_task(_work(world, batch, order), name=f"{batch.stage} batch")
    broken = observers.broken
    try:
        await _decided(batch, order, working, broken)
        await _find_missing(batch, order)
    finally:
        await _stop(working)
        batch.journal.told(world.runtime.counted(batch.released_ns, world.clock.now_ns()))
        if batch.cell is not None:
            world.runtime.measured()
        _compare_clocks(world.clock, batch)
    batch.close("timeout")


async def _decided(
    batch: Batch, order: Order, working: asyncio.Task[None], broken: asyncio.Future[None]
) -> None:
    """Wait until the work is done, an observer is broken, or the limit has passed; obey the brake."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + order.limit_s
    waits: set[asyncio.Future[Any]] = {working, broken}
    if order.brake is not None:
        waits.add(order.brake.pulled)
    await asyncio.wait(waits, timeout=order.limit_s, return_when=asyncio.FIRST_COMPLETED)
    if order.brake is not None and order.brake.pulled.done():
        _hold_back(batch, order.brake)
        waits = {working, broken, batch.finished}
        await asyncio.wait(waits, timeout=until_s - loop.time(), return_when=asyncio.FIRST_COMPLETED)
    if broken.done():
        await broken
    if working.done():
        await working


def _hold_back(batch: Batch, brake: Brake) -> None:
    """Decide the VMs whose request has not left, or was refused and would be sent again."""
    batch.braked = brake.why
    for i in batch.where(""):
        if batch.seen["acknowledged"][i] is None and not brake.is_under_way(i):
            batch.end(i, "failed", f"not sent: {brake.why}", "brake")


async def _find_missing(batch: Batch, order: Order) -> None:
    """What is still open when the limit has passed may have been deleted by somebody else."""
    if order.missing is None or not batch.where(""):
        return
    for i in await order.missing():
        batch.end(i, "lost", DELETED, "foreign_change")


def _compare_clocks(clock: Clock, batch: Batch) -> None:
    if batch.released_at is not None:
        wall_s = (clock.wall() - batch.released_at).total_seconds()
        batch.journal.moved(wall_s, (clock.now_ns() - batch.released_ns) / NS)


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
            due_ns = batch.released_ns + round(batch.turns[i] * NS / rate_per_s)
            wait_s = (due_ns - world.clock.now_ns()) / NS
            if wait_s > 0:
                await world.clock.sleep(wait_s)
        yield i


async def _request(world: World, batch: Batch, order: Order, i: int) -> None:
    while not batch.state[i]:
        pause_s = await _attempt(world, batch, order, i)
        if pause_s is None:
            break
        await world.clock.sleep(pause_s)
    else:
        return
    ns = world.clock.now_ns()
    batch.seen["acknowledged"][i] = batch.not_yet["acknowledged"][i] = ns
    if order.acknowledged is not None:
        order.acknowledged(i, ns)


async def _attempt(world: World, batch: Batch, order: Order, i: int) -> float | None:
    """Send once: None when it was carried out, else the pause; a refusal for good decides the VM."""
    clock = world.clock
    sent_ns = clock.now_ns()
    batch.attempts[i] += 1
    try:
        await _sent(world, batch, order, i)
    except Braked as error:
        batch.end(i, "failed", f"not sent: {error}", "brake")
        return 0.0
    except Throttled as error:
        batch.throttled += 1
        pause_s = max(error.retry_after_s, _pause_s(batch, i))
        now_ns = clock.now_ns()
        batch.journal.answered(now_ns, sent_ns)
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
    except Expired as error:
        batch.journal.refused += 1
        if clock.now_ns() - (batch.requested[i] or sent_ns) < LOGIN_PATIENCE_S * NS:
            return _pause_s(batch, i)
        batch.end(i, "failed", str(error))
        return 0.0
    except ClusterError as error:
        batch.journal.refused += isinstance(error, Forbidden)
        is_gone = isinstance(error, NotFound) and order.missing is not None
        batch.end(i, *(("lost", DELETED, "foreign_change") if is_gone else ("failed", str(error))))
        return 0.0
    batch.journal.answered(clock.now_ns(), sent_ns)
    return None


async def _sent(world: World, batch: Batch, order: Order, i: int) -> None:
    """Send the request of VM i, which leaves when its turn has come; in process it leaves at once."""

    def leaves() -> None:
        ns = world.clock.now_ns()
        if order.brake is not None:
            order.brake.left(i, ns)
        if batch.requested[i] is None:
            batch.requested[i] = ns

    token = departing.set(leaves)
    try:
        if world.name == "virtual":
            leaves()
        await order.send(i)
    finally:
        departing.reset(token)
        if order.brake is not None:
            order.brake.came_back(i, world.clock.now_ns())


async def _landed(batch: Batch, order: Order, i: int, error: ClusterError) -> bool:
    """Read back what became of a request; a plain refusal decides the VM."""
    try:
        if await order.landed(i):
            return True
    except (Throttled, Unavailable, Unknown, Expired):
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
        StageError: not carried out within five minutes, or two without a login.
    """
    start_ns = world.clock.now_ns()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except (Throttled, Unavailable, Unknown, Gone, Expired) as error:
            limit_s = LOGIN_PATIENCE_S if isinstance(error, Expired) else SETUP_LIMIT_S
            if world.clock.now_ns() - start_ns > limit_s * NS:
                raise StageError(f"not done within {limit_s:g} s: {error}") from error
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
