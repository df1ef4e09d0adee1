"""The aggregated API subresources.kubevirt.io: start and stop of a VirtualMachine, behind kube-apiserver.

Answers as KubeVirt's virt-api does: 202 with an empty body, Status objects for refusals, and 406 to a caller
that accepts JSON alone (its routes declare no content type). Only the API server's front-proxy certificate
is let in; who really asks stands in the X-Remote headers and was authorised by the API server.
"""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import web

from infra.errors import ClusterError, Conflict, NotFound, Unavailable
from infra.testbed import apply
from infra.testbed.state import State

StartStop = Callable[[str, str, str, Mapping[str, Any]], Awaitable[int]]
"""Carries out (namespace, name, verb, options) and returns the HTTP status, 202 as a rule."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GROUP, VERSION = "subresources.kubevirt.io", "v1"
VERBS = ("start", "stop", "restart")
FRONT_PROXY_NAME = "front-proxy-client"
SHUTDOWN_S = 1.0
NOT_ACCEPTABLE = "406: Not Acceptable\n\nAvailable representations: "
REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.CONFLICT: "Conflict",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
}


@asynccontextmanager
async def serving(state: State, start_stop: StartStop) -> AsyncIterator[None]:
    """Serve subresources.kubevirt.io to the testbed for the length of the block.

    Listens on the port that the testbed chose, then registers, and returns once calls through the API server
    arrive here. Afterwards the registration is taken away: with an aggregated API that nobody answers,
    discovery fails and no namespace can be deleted.

    Raises:
        ClusterError: the port is taken, or the API server does not accept the registration.
    """
    runner = web.AppRunner(make_app(start_stop), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await _listen(runner, state)
        await asyncio.to_thread(register, state)
        try:
            yield
        finally:
            await asyncio.shield(asyncio.to_thread(unregister, state))
    finally:
        await runner.cleanup()


def register(state: State) -> None:
    """Register the server on the state's `agg_port` and return once the API server finds it available."""
    apply.apply(state, registration(state))


def unregister(state: State) -> None:
    """Take the registration away; fine when there is none."""
    for manifest in reversed(registration(state)):
        apply.delete(state, manifest)


def registration(state: State) -> list[dict[str, Any]]:
    """The Service and the APIService that lead the API server to `agg_port` on this machine.

    An ExternalName is dialled as it stands: no proxy and no endpoints, which must not be loopback anyway.
    """
    service = {"namespace": "kubevirt", "name": "virt-api"}
    authority = base64.b64encode((state.pki / "ca.crt").read_bytes()).decode()
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": service,
            "spec": {
                "type": "ExternalName",
                "externalName": "localhost",
                "ports": [{"name": "https", "port": state.agg_port, "protocol": "TCP"}],
            },
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            # The stamp makes every registration a change, upon which the API server looks again at once;
            # otherwise it looks only every 30 s.
            "metadata": {
                "name": f"{VERSION}.{GROUP}",
                "annotations": {"virtscale.io/registered": str(time.time_ns())},
            },
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "caBundle": authority,
                "service": {**service, "port": state.agg_port},
            },
        },
    ]


def make_app(start_stop: StartStop) -> web.Application:
    """The application: discovery, and `start_stop` behind each verb of a VirtualMachine.

    `start_stop` raises infra.errors NotFound, Conflict or Unavailable for what virt-api would refuse.
    """

    async def act(request: web.Request) -> web.StreamResponse:
        return await _act(request, start_stop)

    base = f"/apis/{GROUP}/{VERSION}"
    app = web.Application(middlewares=[_front_proxy_only])
    app.add_routes(
        [
            web.get("/healthz", _healthz),
            web.get("/apis", _group_list),
            web.get(f"/apis/{GROUP}", _group),
            web.get(base, _resource_list),
            web.put(
                f"{base}/namespaces/{{namespace}}/virtualmachines/{{name}}/{{verb:{'|'.join(VERBS)}}}", act
            ),
        ]
    )
    return app


async def _listen(runner: web.AppRunner, state: State) -> None:
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=str(state.pki / "front-proxy-ca.crt")
    )
    context.load_cert_chain(state.pki / "virt-api.crt", state.pki / "virt-api.key")
    # Optional, so that a caller without the certificate gets a 401 and not a broken handshake.
    context.verify_mode = ssl.CERT_OPTIONAL
    try:
        await web.TCPSite(runner, "127.0.0.1", state.agg_port, ssl_context=context).start()
    except OSError as error:
        raise ClusterError(
            f"port {state.agg_port} of subresources.kubevirt.io is taken: does another `cluster control` run?"
        ) from error


@web.middleware
async def _front_proxy_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path != "/healthz" and not _comes_from_api_server(request):
        return _status(HTTPStatus.UNAUTHORIZED, "the front-proxy client certificate is required")
    return await handler(request)


def _comes_from_api_server(request: web.Request) -> bool:
    connection = request.get_extra_info("ssl_object")
    certificate = connection.getpeercert() if connection is not None else None
    subject = certificate.get("subject", ()) if certificate else ()
    return any(("commonName", FRONT_PROXY_NAME) in names for names in subject)


async def _act(request: web.Request, start_stop: StartStop) -> web.StreamResponse:
    if not _accepts_anything(request.headers.get("Accept", "")):
        return web.Response(status=HTTPStatus.NOT_ACCEPTABLE, text=NOT_ACCEPTABLE)
    try:
        options = _options(await request.read())
    except (TypeError, ValueError) as error:
        message = f"Can not unmarshal Request body to struct, error: {error}"
        return _status(HTTPStatus.BAD_REQUEST, message)
    found = request.match_info
    try:
        code = await start_stop(found["namespace"], found["name"], found["verb"], options)
    except NotFound as error:
        return _status(HTTPStatus.NOT_FOUND, str(error), name=found["name"])
    except Conflict as error:
        return _status(HTTPStatus.CONFLICT, str(error), name=found["name"])
    except Unavailable as error:
        return _status(HTTPStatus.SERVICE_UNAVAILABLE, str(error), name=found["name"])
    except ClusterError as error:
        return _status(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), name=found["name"])
    return web.Response(status=code)


def _accepts_anything(accept: str) -> bool:
    ranges = [part.split(";")[0].strip() for part in accept.split(",")]
    return accept == "" or "*/*" in ranges


def _options(body: bytes) -> dict[str, Any]:
    options: dict[str, Any] = dict(json.loads(body)) if body else {}
    return options


def _status(code: HTTPStatus, message: str, name: str = "") -> web.Response:
    details = {"name": name, "group": "kubevirt.io", "kind": "virtualmachine"} if name else {}
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS[code],
        "details": details,
        "code": int(code),
    }
    return web.json_response(body, status=code)


async def _healthz(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _group_list(_: web.Request) -> web.StreamResponse:
    return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group_document()]})


async def _group(_: web.Request) -> web.StreamResponse:
    return web.json_response(_group_document())


def _group_document() -> dict[str, Any]:
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


async def _resource_list(_: web.Request) -> web.StreamResponse:
    """Without this answer the APIService never becomes available."""
    resource = {"singularName": "", "namespaced": True, "kind": "VirtualMachine", "verbs": ["update"]}
    resources = [{**resource, "name": f"virtualmachines/{verb}"} for verb in VERBS]
    return web.json_response(
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/{VERSION}",
            "resources": resources,
        }
    )
