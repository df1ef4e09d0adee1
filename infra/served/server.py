"""The HTTP server: TLS, the token, discovery, and each call to whom it concerns."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from aiohttp import web

from infra.cluster.port import Object
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.faults import FaultPlan
from infra.errors import ClusterError, ProfileError, Throttled
from infra.served import access as admission
from infra.served import discovery, paths, virt_api
from infra.served.access import Access
from infra.served.calls import Call
from infra.served.cluster import ServedCluster, cluster
from infra.served.objects import Objects
from infra.served.status import Refused, code_of, failure, no_such_resource
from infra.served.watching import Limits, Watches

HOST = "127.0.0.1"
SHUTDOWN_S = 2.0
PUBLIC = frozenset(("/version", "/healthz", "/readyz", "/livez"))


@dataclass(frozen=True)
class Serving:
    """What to serve and where: port 0 is a free one."""

    description: Description
    kubeconfig: Path
    port: int = 0
    seed: int = 1
    faults: FaultPlan = field(default_factory=FaultPlan)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Served:
    """A cluster that answers at `address`."""

    cluster: ServedCluster
    address: str


@asynccontextmanager
async def serving(wanted: Serving) -> AsyncIterator[Served]:
    """A served cluster for the length of the block; its kubeconfig is written when it answers.

    Raises:
        ProfileError: the port is taken, or the kubeconfig is somebody else's.
    """
    admission.refuse_foreign(wanted.kubeconfig)
    access = admission.new_access()
    async with cluster(wanted.description, wanted.faults, wanted.seed) as inside:
        front = Front(inside, access, wanted.limits)
        server = web.Server(front.handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        try:
            port = await _listen(runner, access, wanted.port)
            address = f"https://{HOST}:{port}"
            admission.write_kubeconfig(wanted.kubeconfig, access, address)
            yield Served(inside, address)
        finally:
            front.watches.end_all()
            transports = [each.transport for each in server.connections]
            await runner.cleanup()
            await _abort(transports)


async def _abort(transports: Iterable[asyncio.BaseTransport | None]) -> None:
    """End connections whose clients do not answer TLS's goodbye: their sockets would outlive the loop."""
    for transport in transports:
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
    await asyncio.sleep(0)


async def _listen(runner: web.ServerRunner, access: Access, port: int) -> int:
    try:
        await web.TCPSite(runner, HOST, port, ssl_context=access.tls).start()
    except OSError as error:
        raise ProfileError(f"port {port} cannot be listened on ({error.strerror}); name another") from error
    return int(runner.addresses[0][1])


class Front:
    """Turns requests into calls, and what becomes of them into answers."""

    def __init__(self, inside: ServedCluster, access: Access, limits: Limits) -> None:
        self._inside = inside
        self._authorization = f"Bearer {access.token}".encode()
        self._version = inside.server.description.kubernetes
        self._objects = Objects(inside)
        self.watches = Watches(inside, limits)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        try:
            return await self._routed(request)
        except ClusterError as error:
            return _refusal(request, error)

    async def _routed(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path not in PUBLIC and not self._is_known(request):
            raise Refused(401, "Unauthorized", "Unauthorized")
        if path in PUBLIC and path != "/version":
            return web.Response(text="ok")
        found = discovery.document(path, self._version) if request.method == "GET" else None
        if found is not None:
            return _json(200, found)
        target = paths.target(path)
        if target is None:
            raise no_such_resource()
        headers = request.headers
        accept, content_type = headers.get("Accept", ""), headers.get("Content-Type", "")
        call = Call(request.method, target, request.query, accept, content_type, await request.read())
        if paths.is_virt_api(path):
            plain = await virt_api.act(self._inside.client, call)
            return web.Response(status=plain.code, text=plain.text)
        if call.method == "GET" and call.query.get("watch") in ("true", "1"):
            return await self.watches.serve(request, call)
        answer = await self._objects.answer(call)
        return _json(answer.code, answer.body)

    def _is_known(self, request: web.BaseRequest) -> bool:
        given = request.headers.get("Authorization", "").encode()
        return secrets.compare_digest(given, self._authorization)


def _json(code: int, body: Object) -> web.Response:
    return web.Response(status=code, body=orjson.dumps(body), content_type="application/json")


def _refusal(request: web.BaseRequest, error: ClusterError) -> web.Response:
    target = paths.target(request.path)
    details: Object = {}
    if target is not None:
        named = {"name": target.name, "group": target.kind.group, "kind": target.kind.plural}
        details = {key: value for key, value in named.items() if value}
    response = _json(code_of(error)[0], failure(error, details))
    if isinstance(error, Throttled):
        response.headers["Retry-After"] = str(round(error.retry_after_s) or 1)
    return response
