"""Observers of a batch: reflectors that run, and are synced, before the batch is released."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from infra.clock import Clock
from infra.cluster.port import Object, Scope, WatchBatch
from infra.cluster.reflector import Gap, Listed, Notice, Reflector
from infra.errors import StageError, VirtscaleError
from infra.world import World
from tasks.batch import NS, Batch
from tasks.journal import Journal

SYNC_LIMIT_S = 300.0
REPLAY_S = 1.0
"""How long after a watch was resumed its events may be older than they look; assumption."""
BEAT = "virtscale.io/beat"
"""Annotation of a heartbeat object: the number of its last beat."""

Changed = Callable[[str, Object, int], None]
"""Called with ADDED, MODIFIED or DELETED, the object, and the receipt time in ns."""
Relisted = Callable[[set[str], int], None]
"""Called with the names of all objects that exist (a list says what does not) and the time in ns."""


class View(NamedTuple):
    """One scope and who is told about it; `steps` are those that are seen through it.

    `caught_up` is called some time after a gap, when what the watch missed has been told.
    """

    scope: Scope
    changed: Changed
    relisted: Relisted | None = None
    steps: tuple[str, ...] = ()
    caught_up: Callable[[int], None] | None = None


@dataclass(slots=True)
class Stream:
    """One watch and how far it has been heard: up to `heard_ns`, less its lag, all events were told.

    What is told soon after a watch was resumed may be old, so it moves `heard_ns` only when a
    heartbeat that was sent since then has come, or after `REPLAY_S`. That takes a lag that is
    `steady`, as a model's is. A server's is not: there only what was so before a heartbeat was sent,
    at `sure_ns`, is known to have been told before it. `bracket_ns` is the longest time from one
    heartbeat's sending to the next one's coming: no event in between was later than that. `is_beaten`: there
    is a heartbeat to be told of, whether or not it has come.
    """

    view: View
    reflector: Reflector
    steady: bool = True
    is_beaten: bool = False
    heard_ns: int = 0
    sure_ns: int = 0
    bracket_ns: int = 0
    news_ns: int = 0
    lag_ns: int | None = None
    beat_ns: int | None = None
    beat: tuple[str, str] = ("", "")
    answered_ns: int | None = None
    blind_until_ns: int = 0
    _turns: int = 0
    _resumed_ns: int = 0
    _is_replaying: bool = False

    @property
    def told_until_ns(self) -> int:
        """Up to here everything was told, but for the lag that `late_ns` gives."""
        return self.sure_ns if self._rests_on_beats else self.heard_ns

    @property
    def late_ns(self) -> int | None:
        """How late what was told until then may have been; None: not known."""
        return 0 if self._rests_on_beats else self.lag_ns

    @property
    def _rests_on_beats(self) -> bool:
        return self.is_beaten and not self.steady

    def resumed(self, ns: int) -> None:
        """A notice: when the watch ended since the last one, it is replaying now."""
        reflector = self.reflector
        turns = reflector.resumed + reflector.relists + reflector.broken
        if turns != self._turns:
            self._turns, self._resumed_ns, self._is_replaying = turns, ns, True

    def told(self, batch: WatchBatch, journal: Journal) -> None:
        """Move on past a batch of events."""
        ns = batch.received_ns
        if self.beat_ns is None or not self._came(batch, journal):
            self.news_ns = ns
        if self._is_replaying:
            self._is_replaying = ns - self._resumed_ns < REPLAY_S * NS
        if not self._is_replaying:
            self.heard_ns = ns

    def _came(self, batch: WatchBatch, journal: Journal) -> bool:
        """Whether the heartbeat that is awaited is among these events; its lag is measured."""
        name, number = self.beat
        sent_ns, ns = self.beat_ns or 0, batch.received_ns
        for what, obj in batch.events:
            meta = obj["metadata"]
            # a bookmark has no name
            if meta.get("name") != name or what == "DELETED":
                continue
            if (meta.get("annotations") or {}).get(BEAT) == number:
                self.behind(ns, journal)
                self.beat_ns = self.answered_ns = None
                self.lag_ns = max(self.lag_ns or 0, ns - sent_ns)
                self.bracket_ns = max(self.bracket_ns, ns - (self.sure_ns or sent_ns))
                self.sure_ns = sent_ns
                journal.largest("watch_lag_ms", ns, (ns - sent_ns) / 1e6)
                if sent_ns >= self._resumed_ns:
                    self._is_replaying = False
                return len(batch.events) == 1
        return False

    def behind(self, ns: int, journal: Journal) -> None:
        """A heartbeat that the API server has answered comes now, or has still not come."""
        if self.answered_ns is not None and journal.released_ns:
            since_ns = max(self.answered_ns, journal.released_ns)
            journal.watch_behind_s = max(journal.watch_behind_s, (ns - since_ns) / NS)


class Observers:
    """The running reflectors of a batch, and what went wrong with them."""

    def __init__(self, clock: Clock, batch: Batch | None = None) -> None:
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gaps: list[Gap] = []
        self.late_ns = 0
        self.streams: list[Stream] = []
        self.batch = batch
        self.journal = batch.journal if batch is not None else Journal()
        self._clock = clock
        self._unsynced: set[View] = set()
        self._synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect(self, views: Iterable["View"]) -> None:
        """Which views have to be listed before a batch may be released."""
        self._unsynced = set(views)

    async def follow(self, stream: Stream) -> None:
        """Tell a view's handlers everything, for ever."""
        self.streams.append(stream)
        stream.reflector.noted = self.journal.count
        await self.guard(stream.reflector.follow(partial(self._told, stream)))

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Do other observing work; its error ends the batch as an observer's does, a defect of ours too."""
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(self._ended)
        try:
            await work
        except VirtscaleError as error:
            self._fail(error)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Nobody looks any more: whoever waits for the batch must not wait for its limit."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.broken.done():
            self.broken.set_exception(error)
            self.broken.exception()

    def _told(self, stream: Stream, notice: Notice) -> None:
        if self.batch is not None:
            self.batch.heard_ns = stream.told_until_ns
        try:
            if type(notice) is WatchBatch:
                stream.resumed(notice.received_ns)
                _tell(stream.view.changed, notice)
                stream.told(notice, self.journal)
            elif isinstance(notice, Listed):
                self._listed(stream, notice)
            elif isinstance(notice, Gap):
                self._missed(stream, notice)
        except VirtscaleError as error:
            self._fail(error)

    def _missed(self, stream: Stream, gap: Gap) -> None:
        # a beat that was on its way would measure the gap
        stream.beat_ns = stream.answered_ns = None
        if stream.view.steps:
            self.gaps.append(gap)
        stream.resumed(gap.to_ns)
        caught_up, stream.blind_until_ns = stream.view.caught_up, gap.to_ns + round(REPLAY_S * NS)
        if caught_up is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(REPLAY_S, lambda: caught_up(self._clock.now_ns()))

    def _listed(self, stream: Stream, listed: Listed) -> None:
        view = stream.view
        for obj in listed.items:
            view.changed("ADDED", obj, listed.ns)
        if view.relisted is not None:
            view.relisted({obj["metadata"]["name"] for obj in listed.items}, listed.ns)
        if view in self._unsynced:
            # nothing has been asked for yet, so what the first watch replays is of no step
            stream.heard_ns = stream.news_ns = listed.ns
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

    def looks_at(self, view: View) -> Callable[[], bool]:
        """Whether a view shows what is: not from the loss of its watch until what it missed was told."""
        (stream,) = (stream for stream in self.streams if stream.view is view)
        return lambda: stream.reflector.looks and self._clock.now_ns() >= stream.blind_until_ns

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
        """The longest time nobody looked since then, but for outages of the API itself."""
        gaps = self._gaps_of_ours()
        return max(((gap.to_ns - max(gap.from_ns, since_ns)) / NS for gap in gaps), default=0.0)

    def _gaps_of_ours(self) -> list[Gap]:
        """Gaps that are not those of an API that was away for everybody."""
        outages = self.journal.outages_over(REPLAY_S)
        return [gap for gap in self.gaps if not any(a < gap.to_ns and gap.from_ns < b for a, b in outages)]

    def settle(self) -> None:
        """Tell the batch how late its steps may have been heard.

        A stream without heartbeats is taken to be as late as the latest of the others: server and
        observer are the same. Where nothing was measured, nothing is known.
        """
        if self.batch is None:
            return
        now_ns = self._clock.now_ns()
        self.journal.close(now_ns)
        for stream in self.streams:
            stream.behind(now_ns, self.journal)
        self.journal.connections_lost = len(self._gaps_of_ours())
        self.batch.lag_ns["acknowledged"] = self.late_ns
        known = [s.lag_ns if s.steady else s.bracket_ns for s in self.streams if s.lag_ns is not None]
        for step in self.batch.lag_ns:
            feeding = [stream for stream in self.streams if step in stream.view.steps]
            lags = [max(known, default=None) if s.late_ns is None else s.late_ns for s in feeding]
            measured = [lag for lag in lags if lag is not None]
            if feeding and len(measured) == len(lags):
                self.batch.lag_ns[step] = max(measured)


def _tell(changed: Changed, batch: WatchBatch) -> None:
    ns = batch.received_ns
    for event_type, obj in batch.events:
        if event_type != "BOOKMARK":
            changed(event_type, obj, ns)


@asynccontextmanager
async def observing(world: World, *views: View, batch: Batch | None = None) -> AsyncIterator[Observers]:
    """Observers of these views, synced on entry, gone on exit; `batch` is what is measured with them."""
    observers = Observers(world.clock, batch)
    observers.expect(views)
    tasks = []
    for view in views:
        reflector = Reflector(world.cluster, view.scope, world.clock)
        stream = Stream(view, reflector, steady=world.name == "virtual")
        tasks.append(asyncio.create_task(observers.follow(stream), name=f"observer {view.scope.kind}"))
    try:
        await observers.synced()
        yield observers
        observers.settle()
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
