"""A proxy between virtscale and the API server that speaks TLS on both sides, and can misbehave.

It knows the connections that carry a watch: it can cut them in the middle of a line, keep new ones from being
opened, and let answers trickle through.
"""

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from infra.testbed.state import State

TRICKLE_BYTES = 256
TRICKLE_PAUSE_S = 0.5
CHUNK = 65_536


class Link:
    """One connection of a client's and its counterpart."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.is_watch = self.is_to_be_cut = False

    def abort(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """Runs on a loop in a thread of its own; every method may be called from any thread."""

    def __init__(self, testbed: State) -> None:
        self.port = 0
        self.cuts = 0
        self._testbed = testbed
        self._links: set[Link] = set()
        self._no_watches_until_s = 0.0
        self._trickles_until_s = 0.0

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def cut_watches_within_a_line(self) -> None:
        """Each open watch gets half of the next thing that it is told, and then nothing more."""
        for link in list(self._links):
            link.is_to_be_cut = link.is_watch

    def no_watches(self, pause_s: float) -> None:
        """End all watches, and refuse new ones for so long; everything else goes through."""
        self._no_watches_until_s = time.monotonic() + pause_s
        for link in list(self._links):
            if link.is_watch:
                self._loop.call_soon_threadsafe(link.abort)

    def trickle(self, pause_s: float) -> None:
        """Answers come at 512 bytes a second for so long."""
        self._trickles_until_s = time.monotonic() + pause_s

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._testbed.api_port, ssl=self._upstream())
        except OSError:
            writer.transport.abort()
            return
        link = Link(writer, there[1])
        self._links.add(link)
        try:
            await asyncio.gather(self._ask(reader, link), self._answer(there[0], link))
        finally:
            self._links.discard(link)
            link.abort()

    async def _ask(self, reader: asyncio.StreamReader, link: Link) -> None:
        with suppress(OSError, ssl.SSLError):
            while data := await reader.read(CHUNK):
                link.is_watch = link.is_watch or b"watch=true" in data
                if link.is_watch and time.monotonic() < self._no_watches_until_s:
                    break
                link.server.write(data)
                await link.server.drain()
        link.abort()

    async def _answer(self, reader: asyncio.StreamReader, link: Link) -> None:
        with suppress(OSError, ssl.SSLError):
            while data := await reader.read(CHUNK):
                if link.is_to_be_cut and len(data) > 2:
                    self.cuts += 1
                    link.client.write(data[: len(data) // 2])
                    await link.client.drain()
                    break
                await self._pass_on(data, link)
        link.abort()

    async def _pass_on(self, data: bytes, link: Link) -> None:
        while data and time.monotonic() < self._trickles_until_s:
            link.client.write(data[:TRICKLE_BYTES])
            data = data[TRICKLE_BYTES:]
            await asyncio.sleep(TRICKLE_PAUSE_S)
        if data:
            link.client.write(data)
        await link.client.drain()

    def _upstream(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._testbed.pki / "ca.crt"))

    def _run(self, started: threading.Event) -> None:
        self._loop = asyncio.new_event_loop()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._testbed.pki / "apiserver.crt", self._testbed.pki / "apiserver.key")
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=context)
        )
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(_end_all())
        self._loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def proxied(testbed: State) -> Iterator[Proxy]:
    """A proxy in front of the testbed's API server for the length of the block."""
    proxy, started = Proxy(testbed), threading.Event()
    thread = threading.Thread(target=proxy._run, args=(started,), name="proxy")
    thread.start()
    try:
        assert started.wait(10)
        yield proxy
    finally:
        proxy._loop.call_soon_threadsafe(proxy._loop.stop)
        thread.join(10)
