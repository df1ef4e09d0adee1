"""A measured batch driven by other processes: shares handed out, released at one point in time, put together.

The release is a moment of this process's clock a little ahead; each shard is told it on its own clock, whose
offset is measured before and after. A shard whose process dies takes its VMs' records with it; they are
`lost`, and the others go on.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any

from infra.clock import Clock
from infra.clock_offset import Offset, Trip, offset_of, over
from infra.errors import StageError
from infra.workers import Worker, WorkerGone
from infra.world import World
from tasks.batch import NS, Batch
from tasks.heartbeats import remove_heartbeats
from tasks.profile import Profile
from tasks.shards import link
from tasks.shards.share import Found, Share, lose, merge, split

LOOK_S = 0.25
READY_LIMIT_S = 420.0
"""More than an observer waits for its first list."""
AHEAD_S = 0.5
TRIPS = 15
END_LIMIT_S = 20.0
"""How long shards that were stopped may take to say what they know."""


@dataclass(slots=True)
class Part:
    """A share, the process that has it, and what came of it."""

    share: Share
    worker: Worker
    clock: Clock
    ending: asyncio.Future[Found] | None = None
    before: Offset | None = None
    offset: Offset | None = None
    where: tuple[str, int] = ("", 0)
    gone: str = ""

    @property
    def found(self) -> Found | None:
        """What the shard said at its end; None when its process is gone, or has not ended."""
        ended = self.ending is not None and self.ending.done() and not self.ending.cancelled()
        return self.ending.result() if ended and self.ending and self.ending.exception() is None else None

    async def ask(self, what: Any, *arguments: Any) -> Any:
        """Call a function of `tasks.shards.link` there; None from a process that is gone."""
        try:
            return await self.worker.ask(what, *arguments)
        except WorkerGone as error:
            self.gone = self.gone or str(error)
            return None

    async def measured(self) -> Offset | None:
        """The offset of its clock now; None when it cannot be asked."""
        trips = []
        for _ in range(TRIPS):
            sent_ns = self.clock.now_ns()
            there_ns = await self.ask(link.read_clock)
            if there_ns is None:
                return None
            trips.append(Trip(sent_ns, there_ns, self.clock.now_ns()))
        return offset_of(trips)

    def row(self) -> dict[str, Any]:
        """Its row of table `shards`."""
        found, offset = self.found, self.offset
        is_known = found is not None and offset is not None
        return {
            "shard": self.share.number,
            "vms": len(self.share.names),
            "state": "ok" if is_known else "lost",
            "detail": self.gone or None,
            "host": self.where[0],
            "pid": self.where[1],
            "clock_offset_ns": offset.ns if offset else None,
            "clock_offset_error_ns": offset.error_ns if offset else None,
            "released_late_ns": found.late_ns if found else None,
        }


def is_shared(world: World, batch: Batch) -> bool:
    """Whether other processes take shares of a batch: of one that is measured, where there are some."""
    return world.workers is not None and batch.cell is not None and bool(batch.where(""))


async def in_shards(
    world: World, profile: Profile, batch: Batch, more: dict[str, Any] | None = None
) -> list[tuple[Share, Found]]:
    """Have a batch driven and observed in shares; every VM is decided when this returns.

    `more` is what the stage tells each of them, plain values.

    Raises:
        StageError: there are too few processes, one died before the release, or an observer could not go on.
    """
    assert world.workers is not None
    shares = split(batch, world.workers.shards, world.nonce, more or {})
    workers = await world.workers.free(len(shares))
    parts = [Part(share, worker, world.clock) for share, worker in zip(shares, workers, strict=True)]
    try:
        await _each(_begun(part) for part in parts)
        await _ready(world, parts)
        await _released(world, batch, parts)
        await _followed(world, parts)
    finally:
        await _ended(parts)
        _put_together(batch, parts)
    for number in batch.shards_lost:
        await remove_heartbeats(world, profile.namespace, number)
    return [(part.share, part.found) for part in parts if part.found is not None]


async def _each(works: Iterable[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*works)


async def _begun(part: Part) -> None:
    await part.worker.begin(part.share)
    part.ending = asyncio.ensure_future(part.worker.found())


async def _ready(world: World, parts: list[Part]) -> None:
    """Wait until the observers of every shard run.

    Raises:
        StageError: not within the limit, or a shard ended before.
    """
    until_ns = world.clock.now_ns() + READY_LIMIT_S * NS
    while not all(look is not None and look.is_ready for look in await _looks(parts)):
        _check(parts)
        if lost := [part for part in parts if part.gone]:
            raise StageError(f"shard {lost[0].share.number} is gone before the release: {lost[0].gone}")
        if world.clock.now_ns() > until_ns:
            raise StageError(f"shards were not ready within {READY_LIMIT_S:g} s")
        await world.clock.sleep(LOOK_S)


async def _looks(parts: list[Part]) -> list[link.Look | None]:
    return await _each(part.ask(link.look, part.share.token) for part in parts)


def _check(parts: list[Part]) -> None:
    """Raise what ended a shard early."""
    for part in parts:
        if part.ending is not None and part.ending.done() and (error := part.ending.exception()):
            if not isinstance(error, WorkerGone):
                raise error
            part.gone = part.gone or str(error)


async def _released(world: World, batch: Batch, parts: list[Part]) -> None:
    """One moment for all, each told on its own clock."""
    for part in parts:
        part.before = await part.measured()
        part.where = await part.ask(link.whereabouts) or part.where
    batch.release(world.clock, world.clock.now_ns() + round(AHEAD_S * NS))
    await _each(
        part.ask(link.release, part.share.token, batch.released_ns - part.before.ns)
        for part in parts
        if part.before is not None
    )


async def _followed(world: World, parts: list[Part]) -> None:
    """Wait until every shard has ended or is gone; one's brake is everybody's."""
    while open_parts := [part for part in parts if not part.gone and part.found is None]:
        looks = await _looks(open_parts)
        _check(parts)
        if braked := next((look.braked for look in looks if look and look.braked), ""):
            await _each(part.ask(link.hold, part.share.token, braked) for part in open_parts)
        await world.clock.sleep(LOOK_S)


async def _ended(parts: list[Part]) -> None:
    """Stop what still runs, hear what it knows, and measure the clocks once more."""
    at_work = [part for part in parts if part.ending and not part.ending.done() and not part.gone]
    await _each(part.ask(link.stop, part.share.token) for part in at_work)
    waits = {part.ending for part in at_work if part.ending}
    if waits:
        await asyncio.wait(waits, timeout=END_LIMIT_S)
    for part in parts:
        if part.found is not None and part.before is not None:
            after = await part.measured()
            part.offset = over(part.before, after) if after else None
        elif part.ending is not None:
            part.ending.cancel()
        await part.worker.forget()


def _put_together(batch: Batch, parts: list[Part]) -> None:
    if batch.released_at is None:
        return
    for part in parts:
        if part.found is not None and part.offset is not None:
            merge(batch, part.share, part.found, part.offset)
        else:
            lose(batch, part.share, part.gone or "its process said nothing in the end")
        batch.shards.append(part.row())
