"""A controller's work queue: a key is handled by one worker at a time and never queued twice."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from infra.clock import Clock
from infra.errors import ClusterError

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Level-triggered: adding a key that waits does nothing, adding one in work repeats it after."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[K] = deque()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._failures: dict[K, int] = {}
        # asking for the running loop is a system call in Python 3.11, and workers ask all the time
        self._loop: asyncio.AbstractEventLoop | None = None
        self._later: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Queue a key."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._push(key)

    def _push(self, key: K) -> None:
        self._waiting.append(key)
        idle = self._idle
        while idle:
            waiter = idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key some time from now."""
        task = asyncio.get_running_loop().create_task(self._add_later(key, seconds), name="work queue delay")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _add_later(self, key: K, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.add(key)

    def retry(self, key: K) -> None:
        """Queue a key again with exponential back-off, 5 ms to 1,000 s (client-go's default)."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, min(0.005 * 2 ** (failures - 1), 1000.0))

    async def get(self) -> K:
        """The next key; it is in work until `done`."""
        while not self._waiting:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = asyncio.Future(loop=self._loop)
            self._idle.append(waiter)
            await waiter
        return self.take()

    def take(self) -> K:
        """The next key, when there is one."""
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The key's handling is over; it is queued again if it was added meanwhile."""
        self._working.discard(key)
        if key in self._dirty:
            self._push(key)

    def succeeded(self, key: K) -> None:
        """Forget the key's failures."""
        if self._failures:
            self._failures.pop(key, None)


async def serve(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[None]]) -> None:
    """One worker: reconcile keys for ever; what the API refused is tried again with back-off."""
    while True:
        key = queue.take() if len(queue) else await queue.get()
        try:
            await reconcile(key)
            queue.succeeded(key)
        except ClusterError:
            queue.retry(key)
        finally:
            queue.done(key)
