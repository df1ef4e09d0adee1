"""The virtual cluster's guests in real time: controllers in a thread of this process, stages beside them."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.description import load_description
from infra.cluster.virtual.faults import FaultPlan
from infra.cluster.virtual.loop import EPOCH
from infra.guests.none import NoGuests
from infra.guests.programs.io import IoPrograms
from infra.guests.programs.latency import LatencyPrograms
from infra.guests.virtual import VirtualGuests
from infra.testbed.control import controllers
from infra.testbed.state import CONTEXT, State

T = TypeVar("T")
READY_S = 120.0


class SinceEpoch:
    """This machine's wall clock as virtual time counts, which is what guests' programs go by."""

    def now_ns(self) -> int:
        return time.time_ns() - round(EPOCH.timestamp()) * 10**9

    def wall(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return asyncio.sleep(max(0.0, seconds))


class RealLoop:
    """What guests use of a virtual loop; no command costs them time."""

    def __init__(self, clock: SinceEpoch) -> None:
        self._clock = clock

    @property
    def now_ns(self) -> int:
        return self._clock.now_ns()

    async def wake_at(self, when_ns: int) -> None:
        await asyncio.sleep(0)


class Played:
    """The control plane on its own event loop, and its guests as a stage on another one reaches them."""

    def __init__(self) -> None:
        self.ready, self.over = threading.Event(), threading.Event()
        self.failed: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._guests: VirtualGuests | None = None

    async def play(self) -> None:
        self.loop = asyncio.get_running_loop()
        description = load_description("fast")
        async with controllers(CONTEXT, description, FaultPlan()) as plane:
            self._guests = guests_of(plane)
            self.ready.set()
            await asyncio.to_thread(self.over.wait)

    def run(self) -> None:
        try:
            asyncio.run(self.play())
        except BaseException as error:  # noqa: BLE001  (told to the test that waits)
            self.failed = error
        self.ready.set()

    async def there(self, call: Coroutine[Any, Any, T]) -> T:
        assert self.loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self.loop))

    @property
    def guests(self) -> "FarGuests":
        assert self._guests is not None
        return FarGuests(self, self._guests)


class FarGuests(NoGuests):
    """Guests that can be worked in, and are not probed."""

    steps = VirtualGuests.steps

    def __init__(self, played: Played, guests: VirtualGuests) -> None:
        self._played, self._guests = played, guests

    async def run(self, vm: str, command: str, timeout_s: float) -> bytes:
        return await self._played.there(self._guests.run(vm, command, timeout_s))

    async def put(self, vm: str, path: str, content: bytes) -> None:
        await self._played.there(self._guests.put(vm, path, content))

    async def fetch(self, vm: str, path: str) -> bytes:
        return await self._played.there(self._guests.fetch(vm, path))


def guests_of(plane: ControlPlane) -> VirtualGuests:
    clock, machines, description = SinceEpoch(), plane.machines, plane.description
    loop: Any = RealLoop(clock)
    guests = VirtualGuests(machines, loop, description.guest, description.probing)
    latency = LatencyPrograms(machines, loop, description.latency, plane.draws)
    guests.programs.update(latency.programs)
    guests.programs.update(IoPrograms(machines, clock, description, 1).programs)
    guests.before_use = latency.catch_up
    return guests


@contextmanager
def played(testbed: State) -> Iterator[Played]:
    """The virtual controllers at work on a testbed for the length of the block."""
    found = Played()
    thread = threading.Thread(target=found.run, name="virtual controllers", daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(testbed.kubeconfig))
        thread.start()
        try:
            assert found.ready.wait(READY_S)
            assert found.failed is None, found.failed
            yield found
        finally:
            found.over.set()
            thread.join(READY_S)
    assert found.failed is None, found.failed
