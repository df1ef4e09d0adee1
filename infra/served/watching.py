"""One watch: changes as lines of JSON, bookmarks, a clean end, and no patience with who does not read."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NamedTuple

import orjson
from aiohttp import web

from infra.cluster.port import Object, WatchBatch, WatchEvent, feed
from infra.errors import ClusterError, Gone
from infra.served.calls import Call
from infra.served.cluster import ServedCluster
from infra.served.status import Refused, failure
from infra.served.tables import table

LINES_KEPT = 4096
LONGEST_S = (1800.0, 3600.0)
"""How long a watch lasts that does not say so: as kube-apiserver, anything between."""
INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True)
class Limits:
    """Bookmarks come so often; a watcher may be so far behind; and has so long to take what it was sent."""

    bookmark_s: float = 60.0
    backlog_bytes: int = 8 * 2**20
    grace_s: float = 5.0


class Lines:
    """Events as JSON lines: each is made once, for however many watchers."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[WatchEvent, bytes]] = {}

    def line(self, event: WatchEvent) -> bytes:
        """The line of an event."""
        known = self._made.get(id(event))
        if known is not None and known[0] is event:
            return known[1]
        line = as_line(event.type, event.object)
        if len(self._made) >= LINES_KEPT:
            self._made.clear()
        self._made[id(event)] = event, line
        return line


def as_line(what: str, obj: Object) -> bytes:
    """One event as a line."""
    return b'{"type":"%s","object":%s}\n' % (what.encode(), orjson.dumps(obj))


class Outbox:
    """What a watcher has not been sent yet."""

    def __init__(self, line: Callable[[WatchEvent], bytes], backlog_bytes: int) -> None:
        self._line = line
        self._limit = backlog_bytes
        self._waiting: list[bytes] = []
        self._size = 0
        self._news = asyncio.Event()
        self.is_over = False
        self.on_overflow: Callable[[], object] = lambda: None

    def take(self, batch: WatchBatch) -> None:
        """Keep a batch, unless too much is still waiting: then the watch is over."""
        if self.is_over:
            return
        if self._size > self._limit:
            self.end()
            self._waiting.clear()
            self.on_overflow()
            return
        lines = [self._line(event) for event in batch.events]
        self._waiting += lines
        self._size += sum(map(len, lines))
        self._news.set()

    def end(self, *last: bytes) -> None:
        """Nothing comes after what is waiting and `last`."""
        self._waiting += last
        self.is_over = True
        self._news.set()

    def drain(self) -> bytes:
        """Everything that is waiting."""
        data, self._size = b"".join(self._waiting), 0
        self._waiting.clear()
        self._news.clear()
        return data

    async def wait(self, until: float) -> bool:
        """Wait for news, to this second of the loop's time; whether some came."""
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


class Course(NamedTuple):
    """How one watch goes: what it watches, where to, from which version, until when."""

    call: Call
    outbox: Outbox
    response: web.StreamResponse
    until: float


class Watches:
    """All watches of one served cluster."""

    def __init__(self, cluster: ServedCluster, limits: Limits) -> None:
        self._client, self._server = cluster.client, cluster.server
        self._limits = limits
        self._lines = Lines()
        self._open: set[Outbox] = set()

    def end_all(self) -> None:
        """End every watch cleanly: the server goes away."""
        for outbox in list(self._open):
            outbox.end()

    async def serve(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        """Answer a watch until its time is over, its history is gone or its reader has left."""
        loop = asyncio.get_running_loop()
        lasts = call.number("timeoutSeconds") or random.uniform(*LONGEST_S)
        outbox = Outbox(self._line_of(call), self._limits.backlog_bytes)
        initial, version = await self._initial(call)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        outbox.on_overflow = lambda: loop.call_later(self._limits.grace_s, _abort, request)
        self._open.add(outbox)
        try:
            await self._run(Course(call, outbox, response, loop.time() + lasts), initial, version)
            await response.write_eof()
        except (ConnectionResetError, BrokenPipeError):
            pass
        finally:
            self._open.discard(outbox)
        return response

    def _line_of(self, call: Call) -> Callable[[WatchEvent], bytes]:
        if not call.table:
            return self._lines.line
        kind, include = call.target.kind, call.table

        def row(event: WatchEvent) -> bytes:
            version = event.object["metadata"]["resourceVersion"]
            return as_line(event.type, table(kind, [event.object], version, include))

        return row

    async def _initial(self, call: Call) -> tuple[list[WatchEvent], str]:
        """What there is already, for a watch that asks for it, and the version to go on from."""
        version = call.query.get("resourceVersion", "")
        wants_initial = call.query.get("sendInitialEvents") == "true"
        if version in ("", "0") or wants_initial:
            found = await self._client.list(call.scope)
            if call.query.get("sendInitialEvents") == "false":
                return [], found.resource_version
            return [WatchEvent("ADDED", obj) for obj in found.items], found.resource_version
        if not version.isdigit():
            raise Refused(400, "BadRequest", f"resourceVersion: Invalid value: {version!r}")
        if int(version) > self._server.store.resource_version:
            message = f"Too large resource version: {version}, current: {self._server.store.resource_version}"
            raise Refused(504, "Timeout", message)
        return [], version

    async def _run(self, course: Course, initial: list[WatchEvent], version: str) -> None:
        call, outbox, response, _ = course
        try:
            if int(version) < self._server.first_version:
                raise Gone(f"too old resource version: {version} ({self._server.first_version})")
            stream = self._client.watch(call.scope, version)
        except ClusterError as error:
            await response.write(as_line("ERROR", failure(error)))
            return
        feeding = asyncio.ensure_future(_feed(stream, outbox))
        try:
            for event in initial:
                await response.write(self._line_of(call)(event))
            if call.query.get("sendInitialEvents") == "true":
                await response.write(self._bookmark(call, version, INITIAL_END))
            await self._send(course)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _send(self, course: Course) -> None:
        call, outbox, response, until = course
        loop = asyncio.get_running_loop()
        wants_bookmarks = call.query.get("allowWatchBookmarks") == "true"
        bookmark_at = loop.time() + self._limits.bookmark_s
        while not outbox.is_over and loop.time() < until:
            if await outbox.wait(min(until, bookmark_at)):
                await response.write(outbox.drain())
            elif wants_bookmarks:
                await response.write(self._bookmark(call, self._delivered(call)))
            if loop.time() >= bookmark_at:
                bookmark_at = loop.time() + self._limits.bookmark_s
        if rest := outbox.drain():
            await response.write(rest)

    def _delivered(self, call: Call) -> str:
        newest = self._server.store.resource_version
        return str(self._server.hub(call.target.kind).delivered(newest))

    def _bookmark(self, call: Call, version: str, annotations: Object | None = None) -> bytes:
        kind = call.target.kind
        meta: Object = {"resourceVersion": version, "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        return as_line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})


async def _feed(stream: AsyncIterator[WatchBatch], outbox: Outbox) -> None:
    try:
        await feed(stream, outbox.take)
    except ClusterError as error:
        outbox.end(as_line("ERROR", failure(error)))
    else:
        outbox.end()


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
