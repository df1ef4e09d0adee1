"""Shards without processes: each is a task of the same event loop, and may die."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from infra.guests.none import NoGuests
from infra.workers import Worker, WorkerGone
from infra.world import World
from tasks.profile import Profile
from tasks.shards.link import read_clock
from tasks.shards.share import Found, Share
from tasks.shards.taking import taken

Dies = Callable[[Share, World], bool]
KILLED = "its process was killed"


@dataclass
class Here:
    """A worker in this process; it dies when `dies` says so."""

    world: World
    profile: Profile
    dies: Dies
    share: Share | None = None
    working: asyncio.Task[Found] | None = None
    is_dead: bool = False

    async def begin(self, share: Share) -> None:
        self.share = share
        self.working = asyncio.create_task(taken(self.world, self.profile, share))

    async def ask(self, what: Callable[..., Any], *arguments: Any) -> Any:
        assert self.share is not None
        assert self.working is not None
        if self.is_dead or self.dies(self.share, self.world):
            self.is_dead = True
            self.working.cancel()
            raise WorkerGone(KILLED)
        # on virtual time the clock is that of the loop
        return self.world.clock.now_ns() if what is read_clock else what(*arguments)

    async def found(self) -> Found:
        assert self.working is not None
        try:
            return await asyncio.shield(self.working)
        except asyncio.CancelledError:
            if self.is_dead:
                raise WorkerGone(KILLED) from None
            raise

    async def forget(self) -> None:
        return


@dataclass
class HereWorkers:
    """Workers of a virtual world."""

    world: World
    profile: Profile
    dies: Dies
    shards: int = 4

    async def free(self, n: int) -> list[Worker]:
        return [Here(self.world, self.profile, self.dies) for _ in range(n)]


def sharded(world: World, profile: Profile, dies: Dies = lambda share, world: False) -> World:
    """The world with four workers; storms end at Running, because a process has guests of its own."""
    own = unguested(world)
    return replace(own, workers=HereWorkers(own, profile, dies))


def unguested(world: World) -> World:
    return replace(world, guests=NoGuests())
