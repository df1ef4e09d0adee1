"""A served cluster in a thread of this process, and our adapter connected to it."""

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.kinds import NAMESPACE
from infra.cluster.real import KubernetesCluster, connect
from infra.cluster.virtual.description import Description, load_description
from infra.cluster.virtual.faults import Fault, FaultPlan
from infra.served.access import CONTEXT
from infra.served.realtime import RealTimeLoop
from infra.served.server import Served, Serving, serving
from infra.served.watching import Limits

PATIENCE_S = 20.0
Use = Callable[[KubernetesCluster], Awaitable[None]]


@dataclass
class Server:
    """A served cluster that runs in another thread."""

    kubeconfig: Path
    loop: RealTimeLoop | None = None
    served: Served | None = None
    error: Exception | None = None
    left: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def address(self) -> str:
        assert self.served is not None
        return self.served.address

    def stop(self) -> None:
        """Ask it to end; harmless when it has."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.asked.set)

    def use(self, what: Use) -> None:
        """Run a coroutine with our adapter connected to the server."""

        async def connected() -> None:
            cluster = await connect(CONTEXT, str(self.kubeconfig))
            try:
                await asyncio.wait_for(what(cluster), PATIENCE_S)
            finally:
                await cluster.close()
                # a TLS connection that was cut in the middle of an answer takes a moment to close
                await asyncio.sleep(0.05)

        asyncio.run(connected())


def quick(history: int = 2000) -> Description:
    """Preset fast, with so much history."""
    fast = load_description("fast")
    return fast.model_copy(update={"api": fast.api.model_copy(update={"history": history})})


@contextmanager
def served(wanted: Serving) -> Iterator[Server]:
    """Serve in a thread for the length of the block."""
    server, ready = Server(wanted.kubeconfig), threading.Event()

    async def serve() -> None:
        async with serving(wanted) as found:
            server.served = found
            ready.set()
            await server.asked.wait()
        server.left = [t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()]

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=RealTimeLoop) as runner:
                server.loop = runner.get_loop()  # type: ignore[assignment]
                runner.run(serve())
        except Exception as error:  # noqa: BLE001  (told to the test below)
            server.error = error
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="served cluster")
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        if server.error is not None:
            raise server.error
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if server.error is not None:
        raise server.error


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of the tests' own: keys are made once."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTSCALE_STATE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def server(state: Path) -> Iterator[Server]:
    """One server for all tests that do not need one of their own."""
    limits = Limits(bookmark_s=0.2, backlog_bytes=200_000, grace_s=0.3)
    with served(Serving(quick(), state / "kubeconfig", limits=limits)) as found:
        yield found


@pytest.fixture
def own(state: Path, tmp_path: Path) -> Callable[..., Any]:
    """Serve with other settings: `own(history=20)`, `own(faults=[Fault(...)])`."""

    def start(history: int = 2000, faults: tuple[Fault, ...] = (), **changed: Any) -> Any:
        wanted = Serving(quick(history), tmp_path / "kubeconfig", faults=FaultPlan(fault=faults))
        return served(replace(wanted, **changed))

    return start


@pytest.fixture
def namespace(server: Server) -> str:
    """A fresh namespace."""
    name = f"test-{secrets.token_hex(4)}"

    async def create(cluster: KubernetesCluster) -> None:
        await cluster.create({"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": name}})

    server.use(create)
    return name
