"""An event loop on virtual time: its clock jumps to the next timer when nothing is ready.

Built on the C Task and Future of asyncio, a heap of instants, no selector: several times leaner
than the stock loop, and ties fire in the order in which they were made. No real I/O works on it.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, TypeVar
from weakref import WeakSet

from infra.errors import VirtscaleError

T = TypeVar("T")
_Future = asyncio.Future
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Wall time of virtual time 0: fixed, so that the same seed gives the same bytes."""


class Deadlock(VirtscaleError):
    """Nothing is ready and no timer is set: the text says who waits for ever."""


class _Handle:
    """One scheduled callback; only what asyncio's own primitives need of a handle."""

    __slots__ = ("_args", "_callback", "_cancelled", "_when")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], when: float = 0.0) -> None:
        self._callback = callback
        self._args = args
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        if not self._cancelled:
            self._callback(*self._args)


def _raise(error: BaseException) -> None:
    raise error


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs tasks in a fixed order on a clock of integer nanoseconds that never waits.

    Callbacks run without `Context.run`: context variables are not isolated per task.
    """

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._instants: list[int] = []
        self._due: dict[int, list[tuple[Any, tuple[Any, ...] | None]]] = {}
        self._running = False
        self._stopping = False
        self._closed = False
        self._generators: WeakSet[Any] = WeakSet()

    def time(self) -> float:
        """Virtual seconds, for asyncio's own timeouts."""
        return self.now_ns / 1e9

    def wake_at(self, when_ns: int) -> asyncio.Future[None]:
        """A future that is done at `when_ns`: the leanest way to sleep; not cancellable as a timer."""
        future: asyncio.Future[None] = _Future(loop=self)
        due = self._due.get(when_ns)
        if due is None:
            self._due[when_ns] = [(future, None)]
            heappush(self._instants, when_ns)
        else:
            due.append((future, None))
        return future

    def call_at_ns(self, when_ns: int, callback: Callable[..., object], *args: Any) -> None:
        """Run a plain callback at `when_ns`."""
        due = self._due.get(when_ns)
        if due is None:
            due = self._due[when_ns] = []
            heappush(self._instants, when_ns)
        due.append((callback, args))

    # mypy: AbstractEventLoop's signatures are wider than what can happen here
    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle | None:
        """Run at the end of the queue, at the same virtual time.

        Tasks and futures give a context and never cancel: they get no handle, which is a third
        of the cost of a switch.
        """
        if context is not None:
            self._ready.append((callback, args))
            return None
        handle = _Handle(callback, args)
        self._ready.append((handle.run, ()))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle | None:
        """The same: nothing but a signal handler calls from outside."""
        return self.call_soon(callback, *args)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        """Run `delay` virtual seconds from now."""
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        """Run at virtual second `when`."""
        handle = _Handle(callback, args, when)
        self.call_at_ns(max(self.now_ns, round(when * 1e9)), handle.run)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=name)

    def run_forever(self) -> None:
        """Run until `stop`; raises Deadlock when nothing can ever happen again."""
        self._running, self._stopping = True, False
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        asyncio._set_running_loop(self)
        try:
            self._run()
        finally:
            self._running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run(self) -> None:
        ready, instants, due_at = self._ready, self._instants, self._due
        while True:
            while ready:
                callback, args = ready.popleft()
                callback(*args)
            if self._stopping:
                return
            if not instants:
                raise Deadlock(self._who_waits())
            self.now_ns = when = heappop(instants)
            for due, arguments in due_at.pop(when):
                if arguments is not None:
                    ready.append((due, arguments))
                elif not due.done():
                    due.set_result(None)

    def _who_waits(self) -> str:
        names = sorted({task.get_name() for task in asyncio.all_tasks(self)})
        return (
            f"virtual time {self.time():.3f} s: nothing can happen any more; waiting: {', '.join(names[:20])}"
        )

    def run_until_complete(self, future: Any) -> Any:
        """Run until a coroutine or future is done and return its result."""
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._done)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._done)
        return task.result()

    def _done(self, _: Any) -> None:
        self._stopping = True

    def stop(self) -> None:
        """Stop after the callbacks that are ready now."""
        self._stopping = True

    def is_running(self) -> bool:
        """Whether `run_forever` is on the stack."""
        return self._running

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Forget all that is scheduled."""
        self._ready.clear()
        self._instants.clear()
        self._due.clear()
        self._closed = True

    # every future asks for it when it is made: bool() is False without a Python call
    get_debug = bool

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode on virtual time."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Leave the loop with the error: an exception nobody waits for is a bug in the model."""
        error = context.get("exception")
        if error is not None and self._running:
            self._ready.appendleft((_raise, (error,)))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Same as the default: there is no other handler."""
        self.default_exception_handler(context)

    async def shutdown_asyncgens(self) -> None:
        """Close generators that were left half way."""
        for generator in list(self._generators):
            await generator.aclose()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is no executor on virtual time."""

    def _finalize(self, generator: Any) -> None:
        self._generators.discard(generator)
        if not self._closed:
            self.create_task(generator.aclose())


def new_loop(now_ns: int = 0) -> VirtualLoop:
    """A virtual loop; what asyncio declares abstract (I/O, threads, subprocesses) does not exist here."""
    return VirtualLoop(now_ns)  # type: ignore[abstract]


class VirtualClock:
    """The observer's clock on virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ns(self) -> int:
        """Virtual nanoseconds."""
        return self._loop.now_ns

    def wall(self) -> datetime:
        """Virtual UTC: the fixed epoch plus virtual time."""
        return EPOCH + timedelta(microseconds=self._loop.now_ns // 1000)

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait without anybody waiting."""
        loop = self._loop
        return loop.wake_at(loop.now_ns + round(seconds * 1e9) if seconds > 0 else loop.now_ns)
