"""The virtual API server on the machine's own time: the stock loop with what the virtual loop adds."""

import asyncio
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from infra.cluster.kinds import EVENT
from infra.cluster.port import Object
from infra.cluster.virtual.api import ApiServer, VirtualClient
from infra.cluster.virtual.description import Description, Rate
from infra.cluster.virtual.loop import VirtualClock, VirtualLoop

VERSIONS_PER_S = 1000


class RealTimeLoop(asyncio.SelectorEventLoop):
    """What the virtual cluster asks of its loop besides asyncio: instants in monotonic nanoseconds."""

    @property
    def now_ns(self) -> int:
        """Monotonic nanoseconds of this machine: the clock of `time` too."""
        return time.monotonic_ns()

    def wake_at(self, when_ns: int) -> asyncio.Future[None]:
        """A future that is done at `when_ns`."""
        future: asyncio.Future[None] = self.create_future()
        self.call_at(when_ns / 1e9, _wake, future)
        return future

    def call_at_ns(self, when_ns: int, callback: Callable[..., object], *args: Any) -> None:
        """Run a plain callback at `when_ns`."""
        self.call_at(when_ns / 1e9, callback, *args)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class RealClock(VirtualClock):
    """The same clock where time passes by itself."""

    def wall(self) -> datetime:
        """UTC of this machine."""
        return datetime.now(UTC)


class ServedApiServer(ApiServer):
    """The virtual API server on a `RealTimeLoop`.

    UIDs and resource versions are not those of an earlier process: versions go on from the wall clock, so
    a client that resumes from before is told that its history is gone.
    """

    def __init__(self, loop: RealTimeLoop, description: Description) -> None:
        # the store, its hubs and its garbage collector ask for no more of a loop than this one has
        as_virtual = cast(VirtualLoop, loop)
        super().__init__(as_virtual, description, secrets.randbits(32))
        self.clock = RealClock(as_virtual)
        self.first_version = self.store.resource_version = round(time.time() * VERSIONS_PER_S)

    def client(self, rate: Rate | None = None) -> VirtualClient:
        """A client whose Events say when they happened: kubectl shows that."""
        return _DatingClient(self, self.bucket(rate or Rate(qps=0, burst=0)))

    def stamp(self) -> str:
        """Wall time in the API's resolution of one second."""
        return self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")


class _DatingClient(VirtualClient):
    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create; an Event without times happened now, once."""
        if obj.get("kind") == EVENT.kind and "lastTimestamp" not in obj:
            now = self._server.stamp()
            obj = {**obj, "firstTimestamp": now, "lastTimestamp": now, "count": 1}
        return await super().create(obj, dry_run=dry_run)
