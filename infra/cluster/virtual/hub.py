"""Watches: one hub per kind gathers changes and delivers them, a lag later, in shared batches.

A hub keeps the last events as history; a watch that asks for more gets Gone, as on a real server.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from infra.cluster.kinds import Kind
from infra.cluster.port import Object, WatchBatch, WatchEvent
from infra.cluster.virtual.loop import VirtualLoop
from infra.cluster.virtual.selectors import Predicate
from infra.errors import Gone

_new = tuple.__new__
Change = tuple[int, WatchEvent, Object | None]
"""One change as the store published it: resource version, event, and the object before it,
which is needed for selector edges."""


def seen_through(change: Change, matches: Predicate) -> WatchEvent | None:
    """What a watcher with a selector sees of a change: labels that change make ADDED or DELETED."""
    _, event, before = change
    now = matches(event.object)
    if event[0] != "MODIFIED" or before is None:
        return event if now else None
    was = matches(before)
    if now:
        return event if was else WatchEvent("ADDED", event.object)
    return WatchEvent("DELETED", event.object) if was else None


class WatchStream:
    """One open watch: an async iterator of batches, ended by the hub or by its reader."""

    def __init__(self, hub: "Hub", namespace: str, matches: Predicate | None, after: int) -> None:
        self._hub = hub
        self._after = after
        self._namespace = namespace
        self._matches = matches
        self._buffer: list[WatchEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[WatchBatch], None] | None = None
        self._ended = False
        self._error: Exception | None = None

    def __aiter__(self) -> AsyncIterator[WatchBatch]:
        return self

    async def __anext__(self) -> WatchBatch:
        while not self._buffer:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait()
        events, self._buffer = self._buffer, []
        return WatchBatch(self._hub.loop.now_ns, events)

    async def feed(self, take: Callable[[WatchBatch], None]) -> None:
        """Hand every batch to `take`, in the moment in which it arrives, until the stream ends.

        The same as iterating, without a task that wakes up for every batch.
        """
        try:
            if self._buffer:
                take(await self.__anext__())
            self._take = take
            while not self._ended:
                await self._wait()
            if self._error is not None:
                raise self._error
        finally:
            self._hub.drop(self)

    async def _wait(self) -> None:
        self._waiter = asyncio.Future(loop=self._hub.loop)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def offer(self, changes: list[Change], whole: list[WatchEvent]) -> None:
        """Take a hub's batch; `whole` is the shared list for watchers that see everything."""
        if changes[0][0] <= self._after:
            # on its way when this watch was opened, but older than what its reader knows
            changes = [change for change in changes if change[0] > self._after]
            whole = [change[1] for change in changes]
            if not whole:
                return
        if self._matches is None and not self._namespace:
            events = whole
        else:
            events = [seen for change in changes if (seen := self._filtered(change)) is not None]
            if not events:
                return
        if self._take is not None:
            self._take(_new(WatchBatch, (self._hub.loop.now_ns, events)))
            return
        self._buffer = events if not self._buffer else self._buffer + events
        self._wake()

    def _filtered(self, change: Change) -> WatchEvent | None:
        event = change[1]
        if self._namespace and event.object["metadata"].get("namespace") != self._namespace:
            return None
        return event if self._matches is None else seen_through(change, self._matches)

    def end(self, error: Exception | None = None) -> None:
        """End cleanly after what is buffered, or with an error."""
        self._ended, self._error = True, error
        self._hub.drop(self)
        self._wake()

    async def aclose(self) -> None:
        """Stop watching."""
        self._ended = True
        self._hub.drop(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Hub:
    """All watches of one kind."""

    def __init__(self, kind: Kind, loop: VirtualLoop, lag_s: float, history: int) -> None:
        self.kind = kind
        self.loop = loop
        self._lag_ns = round(lag_s * 1e9)
        self._history: deque[Change] = deque(maxlen=history)
        self._dropped_version = 0
        self._pending: list[Change] = []
        self._open: tuple[WatchStream, ...] = ()

    def publish(self, change: Change) -> None:
        """Keep a change for delivery `lag_s` after the first of its batch."""
        self._history.append(change)
        # What is pending is always the end of the history: `open` relies on it.
        if self._open or self._pending:
            if not self._pending:
                self.loop.call_at_ns(self.loop.now_ns + self._lag_ns, self._flush)
            self._pending.append(change)

    def _flush(self) -> None:
        changes, self._pending = self._pending, []
        if not changes:
            return
        whole = [change[1] for change in changes]
        for stream in self._open:
            stream.offer(changes, whole)

    def open(self, namespace: str, matches: Predicate | None, resource_version: int) -> WatchStream:
        """Start a watch after a resource version; Gone when that is no longer in history."""
        oldest = self._oldest()
        if resource_version < oldest:
            raise Gone(f"too old resource version: {resource_version} ({oldest})")
        stream = WatchStream(self, namespace, matches, resource_version)
        undelivered = len(self._pending)
        known = list(self._history)
        missed = [c for c in known[: len(known) - undelivered] if c[0] > resource_version]
        if missed:
            stream.offer(missed, [change[1] for change in missed])
        self._open = (*self._open, stream)
        return stream

    def _oldest(self) -> int:
        """The oldest version that can be resumed: as the watch cache of a real server reckons it."""
        history = self._history
        return history[0][0] - 1 if len(history) == history.maxlen else self._dropped_version

    def delivered(self, newest: int) -> int:
        """Up to which version watchers were told of everything, the store being at `newest`."""
        return self._pending[0][0] - 1 if self._pending else newest

    def drop(self, stream: WatchStream) -> None:
        """Forget a watch."""
        self._open = tuple(each for each in self._open if each is not stream)

    def end_all(self, error: Exception | None = None, *, forget_history: bool = False) -> int:
        """End every watch of this kind (a fault, or the server going away); returns how many."""
        streams = self._open
        if forget_history and self._history:
            self._dropped_version = self._history[-1][0]
            self._history.clear()
            self._pending.clear()
        for stream in streams:
            stream.end(error)
        return len(streams)
