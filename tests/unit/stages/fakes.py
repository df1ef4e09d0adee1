"""A cluster that answers by script, and one that refuses some requests of a real (virtual) one."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from infra.cluster.port import Cluster, Object, ObjectList, Ref, Scope, WatchBatch, WatchEvent


class StepClock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000
        self.slept: list[float] = []

    def now_ns(self) -> int:
        return self.ns

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ns += round(seconds * 1e9)
        await asyncio.sleep(0)


def obj(name: str, version: int, **fields: Any) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **fields}


def event(kind: str, name: str, version: int) -> WatchEvent:
    return WatchEvent(kind, obj(name, version))


class ScriptedCluster:
    """Lists and watches as told; `watched` keeps the resource versions that were asked for.

    A watch is a list of what it does: a WatchBatch is delivered, an exception is raised, the end
    of the list ends the stream cleanly. When the script is over, a watch waits for ever.
    """

    def __init__(self, lists: list[Any], watches: list[list[Any]], clock: StepClock | None = None) -> None:
        self.lists = deque(lists)
        self.watches = deque(watches)
        self.watched: list[str] = []
        self.clock = clock

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        answer = self.lists.popleft()
        if isinstance(answer, Exception):
            raise answer
        items, version = answer
        return ObjectList(items, version, "")

    async def watch(self, scope: Scope, resource_version: str) -> AsyncIterator[WatchBatch]:
        self.watched.append(resource_version)
        if not self.watches:
            await asyncio.get_running_loop().create_future()
        for what in self.watches.popleft():
            if isinstance(what, Exception):
                raise what
            if self.clock:
                self.clock.ns = max(self.clock.ns, what.received_ns)
            yield what


class RefusingCluster:
    """Passes everything on, after raising what `refuse(verb, ref)` returns."""

    def __init__(
        self, inner: Cluster, refuse: Callable[[str, str], Exception | None], *, after: bool = False
    ) -> None:
        self._inner = inner
        self._refuse = refuse
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        error = self._refuse("create", obj["metadata"].get("name", ""))
        if error and not self._after:
            raise error
        created = await self._inner.create(obj, dry_run=dry_run)
        if error:
            raise error
        return created

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        error = self._refuse(verb, ref.name)
        if error and not self._after:
            raise error
        await self._inner.subresource(ref, verb, body)
        if error:
            raise error
