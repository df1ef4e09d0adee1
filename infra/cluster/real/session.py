"""Connections to one API server: bounded, kept, closed cleanly; every failure as an `infra.errors` one."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from yarl import URL

from infra.cluster.port import departing
from infra.cluster.real.login import Login
from infra.cluster.real.refusals import NO_ANSWER, refusal, silence
from infra.cluster.real.requests import WATCH_S, Request
from infra.errors import ClusterError, Expired, Unreachable

CONNECT_S = 10.0
# Longer than the API server's own limit of 60 s, so that its answer comes first.
ANSWER_S = 65.0
# An answer that trickles in, byte by byte, never ends a limit on silence.
WHOLE_ANSWER_S = 120.0
# A token that was refused is not asked for again before this, however many requests it was refused to.
LOGIN_PAUSE_S = 1.0
WATCH_GRACE_S = 30.0
READ_BUFFER_BYTES = 2**20
# A connection whose other end vanished is noticed within half a minute.
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))

CALL_TIMEOUT = aiohttp.ClientTimeout(total=WHOLE_ANSWER_S, sock_connect=CONNECT_S, sock_read=ANSWER_S)
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=WATCH_S + WATCH_GRACE_S, sock_connect=CONNECT_S)


async def log_in(context: str, kubeconfig: str) -> Login:
    """The login of a context; see `infra.cluster.real.kubeconfig.log_in`."""
    # Deferred: the official client costs half a second to import, which a virtual cluster need not pay.
    from infra.cluster.real import kubeconfig as reader

    return await reader.log_in(context, kubeconfig)


class Session:
    """Requests to the API server of one login, so many at a time; the time limits of one begin with its turn.

    Watches are outside the bound: they never end their turn.
    """

    def __init__(self, login: Login, kubeconfig: str, connections: int) -> None:
        self.login = login
        self._kubeconfig = kubeconfig
        self._turns = asyncio.Semaphore(connections)
        self._calls = _client(login, connections)
        self._watches = _client(login, 0)
        self._logging_in = asyncio.Lock()
        self._logged_in_ns = 0

    async def call(self, request: Request) -> Any:
        """The parsed answer, None when it is empty.

        Raises:
            ClusterError: the matching one of `infra.errors`, chained to its cause.
        """
        async with self._turns:
            departing.get()()
            used = self.login.authorization
            status, body, retry_after = await self._exchange(request)
            if status == 401 and await self._log_in_again(used):
                status, body, retry_after = await self._exchange(request)
        if status >= 400:
            raise self._refused(request, status, body, retry_after)
        return orjson.loads(body) if body else None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a long answer, to be read as it comes.

        Raises:
            ClusterError: the server refused; a connection that breaks later raises aiohttp's own errors.
        """
        used = self.login.authorization
        response = await self._open(request)
        if response.status == 401 and await self._log_in_again(used):
            response.release()
            response = await self._open(request)
        async with response:
            if response.status >= 400:
                retry_after = response.headers.get("Retry-After", "")
                raise self._refused(request, response.status, await response.read(), retry_after)
            yield response.content

    async def close(self) -> None:
        """Close every connection; idempotent."""
        await self._calls.close()
        await self._watches.close()

    async def _exchange(self, request: Request) -> tuple[int, bytes, str]:
        try:
            async with self._calls.request(request.method, **self._arguments(request)) as response:
                body = await response.read()
                return response.status, body, response.headers.get("Retry-After", "")
        except NO_ANSWER as error:
            raise silence(error, request.method, request.title) from error

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        try:
            return await self._watches.request(
                request.method, **self._arguments(request), timeout=WATCH_TIMEOUT
            )
        except NO_ANSWER as error:
            raise silence(error, request.method, request.title) from error

    def _arguments(self, request: Request) -> dict[str, Any]:
        headers = {"Content-Type": request.content_type} if request.body else {}
        if self.login.authorization:
            headers["Authorization"] = self.login.authorization
        return {
            "url": URL(self.login.server + request.path, encoded=True),
            "data": request.body or None,
            "headers": headers,
            "proxy": self.login.proxy,
            "server_hostname": self.login.server_name,
        }

    async def _log_in_again(self, used: str) -> bool:
        """Get a new token if the one just refused has run out; whether it is worth asking again.

        Raises:
            Expired: there is none to be had now.
        """
        async with self._logging_in:
            age_s = (time.monotonic_ns() - self._logged_in_ns) / 1e9
            if used and self.login.authorization == used and age_s > LOGIN_PAUSE_S:
                self._logged_in_ns = time.monotonic_ns()
                try:
                    self.login = await log_in(self.login.context, self._kubeconfig)
                except Unreachable as error:
                    raise Expired(f"logged out, and: {error}") from error
            return self.login.authorization != used

    def _refused(self, request: Request, status: int, body: bytes, retry_after: str) -> ClusterError:
        is_read = request.method == "GET"
        error = refusal(status, body, request.title, retry_after=retry_after, is_read=is_read)
        error.__cause__ = HttpRefusal(status, request.path)
        return error


class HttpRefusal(Exception):
    """The cause behind a refusal: status and path, for those who read the traceback."""


def _client(login: Login, connections: int) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=login.tls, limit=connections, socket_factory=_socket)
    # `*/*`: virt-api answers 406 to a caller that accepts JSON alone.
    return aiohttp.ClientSession(
        connector=connector,
        headers={"Accept": "*/*"},
        timeout=CALL_TIMEOUT,
        read_bufsize=READ_BUFFER_BYTES,
        auto_decompress=True,
    )


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
