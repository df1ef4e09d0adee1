"""Observers of a batch: reflectors that run, and are synced, before the batch is released."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from infra.clock import Clock
from infra.cluster.port import Object, Scope, WatchBatch
from infra.cluster.reflector import Gap, Listed, Notice, Reflector
from infra.errors import StageError, VirtscaleError
from infra.world import World
from tasks.batch import NS

SYNC_LIMIT_S = 300.0

Changed = Callable[[str, Object, int], None]
"""Called with ADDED, MODIFIED or DELETED, the object, and the receipt time in ns."""
Relisted = Callable[[set[str], int], None]
"""Called with the names of all objects that exist (a list says what does not) and the time in ns."""


class View(NamedTuple):
    """One scope and who is told about it."""

    scope: Scope
    changed: Changed
    relisted: Relisted | None = None


class Observers:
    """The running reflectors of a batch, and what went wrong with them."""

    def __init__(self, clock: Clock) -> None:
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gaps: list[Gap] = []
        self.reflectors: list[Reflector] = []
        self._clock = clock
        self._unsynced: set[View] = set()
        self._synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect(self, views: Iterable["View"]) -> None:
        """Which views have to be listed before a batch may be released."""
        self._unsynced = set(views)

    async def follow(self, reflector: Reflector, view: View) -> None:
        """Tell a view's handlers everything, for ever."""
        await self.guard(reflector.follow(partial(self._told, view)))

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Do other observing work; its error ends the batch as an observer's does."""
        try:
            await work
        except VirtscaleError as error:
            self._fail(error)

    def _told(self, view: View, notice: Notice) -> None:
        try:
            if type(notice) is WatchBatch:
                _tell(view.changed, notice)
            elif isinstance(notice, Listed):
                self._listed(view, notice)
            elif isinstance(notice, Gap):
                self.gaps.append(notice)
        except VirtscaleError as error:
            self._fail(error)

    def _listed(self, view: View, listed: Listed) -> None:
        for obj in listed.items:
            view.changed("ADDED", obj, listed.ns)
        if view.relisted is not None:
            view.relisted({obj["metadata"]["name"] for obj in listed.items}, listed.ns)
        self._unsynced.discard(view)
        if not self._unsynced and not self._synced.done():
            self._synced.set_result(None)

    def _fail(self, error: VirtscaleError) -> None:
        if not self.broken.done():
            failure = error
            if not isinstance(error, StageError):
                failure = StageError(f"an observer had to stop: {error}")
                failure.__cause__ = error
            self.broken.set_exception(failure)
            self.broken.exception()

    async def synced(self) -> None:
        """Wait until every view has been listed.

        Raises:
            StageError: an observer failed, or the API server did not answer for five minutes.
        """
        waits = {self._synced, self.broken}
        await asyncio.wait(waits, timeout=SYNC_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if self.broken.done():
            await self.broken
        if not self._synced.done():
            raise StageError(f"the API server answered no list for {SYNC_LIMIT_S:g} s")

    def longest_gap_s(self, since_ns: int) -> float:
        """The longest time nobody looked since then."""
        return max(((gap.to_ns - max(gap.from_ns, since_ns)) / NS for gap in self.gaps), default=0.0)


def _tell(changed: Changed, batch: WatchBatch) -> None:
    ns = batch.received_ns
    for event_type, obj in batch.events:
        if event_type != "BOOKMARK":
            changed(event_type, obj, ns)


@asynccontextmanager
async def observing(world: World, *views: View) -> AsyncIterator[Observers]:
    """Observers of these views, synced on entry, gone on exit."""
    observers = Observers(world.clock)
    observers.expect(views)
    tasks = []
    for view in views:
        reflector = Reflector(world.cluster, view.scope, world.clock)
        observers.reflectors.append(reflector)
        name = f"observer {view.scope.kind}"
        tasks.append(asyncio.create_task(observers.follow(reflector, view), name=name))
    try:
        await observers.synced()
        yield observers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Objects = dict[str, Object]


async def wait_until(world: World, scope: Scope, holds: Callable[[Objects], bool], limit_s: float) -> None:
    """Watch a scope until its objects (name to object) are as wanted.

    Raises:
        StageError: not within the limit; the text names the scope.
    """
    objects: Objects = {}
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def changed(event_type: str, obj: Object, _ns: int) -> None:
        if event_type == "DELETED":
            objects.pop(obj["metadata"]["name"], None)
        else:
            objects[obj["metadata"]["name"]] = obj
        relisted(None, 0)

    def relisted(names: set[str] | None, _ns: int) -> None:
        for gone in [] if names is None else [name for name in objects if name not in names]:
            del objects[gone]
        if synced and not done.done() and holds(objects):
            done.set_result(None)

    synced = False
    async with observing(world, View(scope, changed, relisted)) as observers:
        synced = True
        relisted(None, 0)
        await asyncio.wait({done, observers.broken}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if observers.broken.done():
            await observers.broken
    if not done.done():
        where = scope.namespace or "the cluster"
        raise StageError(f"{scope.kind.plural} in {where}: not ready within {limit_s:g} s")
