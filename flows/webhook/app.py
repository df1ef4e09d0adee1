"""The receiver as an ASGI application: who, what, how often; then one run, and an answer that says which.

Answers: 202 a run (new, or that of the same delivery), 200 a dry run or GitHub's ping, 400 what is wrong and
where, 401, 404, 409 the delivery id or signature was used for something else, 413, 429, 503 try again.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from flows.webhook.pace import Buckets, Pace, Proofs
from flows.webhook.rules import Hook, Rules, Unacceptable, allowed, first_of
from flows.webhook.signatures import DELIVERY, WINDOW_S, Headers, Refused, Secrets, Sender, sender_of
from flows.webhook.starting import Contradiction, NoDeployment, Order, PrefectAway, Starter
from flows.webhook.telling import Told, metrics_page, tell
from infra.errors import VirtscaleError

HEADERS_KIB = 16

Opened = Callable[[], AbstractAsyncContextManager[Starter]]


class Asked(BaseModel):
    """The body of a request of our own form."""

    model_config = ConfigDict(extra="forbid", strict=True)

    parameters: dict[str, Any] = {}
    dry_run: bool = False


class Answer(Exception):
    """Ends a request: what the sender hears, and what the log says beside it."""

    def __init__(self, status: int, error: str, reason: str = "", wait_s: float = 0.0) -> None:
        super().__init__(error)
        self.status, self.error, self.reason, self.wait_s = status, error, reason or error, wait_s


class Receiver(NamedTuple):
    """What the routes share."""

    rules: Rules
    secrets: Secrets
    proofs: Proofs
    failures: Buckets
    genuine: Buckets


def application(rules: Rules, secrets: Secrets, opened: Opened) -> Starlette:
    """The application; `opened` gives the starter for as long as it runs."""
    limits = rules.limits
    receiver = Receiver(
        rules,
        secrets,
        Proofs(2 * WINDOW_S),
        Buckets(Pace(limits.failures_per_s, limits.failures_burst)),
        Buckets(Pace(limits.requests_per_s, limits.burst)),
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with opened() as starter:
            app.state.receiver, app.state.starter = receiver, starter
            yield

    routes = [
        Route("/hooks/{hook}", hooks, methods=["POST"]),
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def healthz(request: Request) -> Response:
    """The process is alive."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """Whether a request could start something now."""
    ready = await request.app.state.starter.is_ready()
    return PlainTextResponse("ok\n" if ready else "Prefect does not answer\n", 200 if ready else 503)


async def metrics(request: Request) -> Response:
    """Counters for Prometheus."""
    page, kind = metrics_page()
    return Response(page, media_type=kind)


async def hooks(request: Request) -> Response:
    """One delivery."""
    began_s = time.monotonic()
    told = Told(request.path_params["hook"], request.client.host if request.client else "")
    try:
        status, content = await _delivered(request, told)
        answer = JSONResponse(content, status)
    except Answer as end:
        told.reason = end.reason
        wait = {"Retry-After": str(max(1, round(end.wait_s)))} if end.status in {429, 503} else {}
        # What was not read of a body must not be taken for the next request.
        close = {"Connection": "close"} if end.status in {400, 413, 429} else {}
        answer = JSONResponse({"error": end.error}, end.status, {**wait, **close})
    tell(told, answer.status_code, time.monotonic() - began_s)
    return answer


async def _delivered(request: Request, told: Told) -> tuple[int, dict[str, Any]]:
    receiver: Receiver = request.app.state.receiver
    now_s = time.monotonic()
    if wait_s := receiver.failures.wait_s(told.address, now_s, cost=0.0):
        raise Answer(429, "too many refused requests", wait_s=wait_s)
    body = await _body(request, receiver.rules)
    sender = _sender(request, body, receiver, told)
    told.form, told.delivery = sender.form, sender.delivery
    hook = receiver.rules.hooks.get(told.hook)
    if hook is None:
        raise Answer(404, "no such hook")
    if wait_s := receiver.genuine.wait_s("", now_s):
        raise Answer(429, "too many requests", wait_s=wait_s)
    if sender.event == "ping":
        return 200, {"pong": True}
    return await _started(request.app.state.starter, hook, told, _asked(sender, body))


async def _body(request: Request, rules: Rules) -> bytes:
    """The body, if it is small and comes soon."""
    if sum(len(name) + len(value) for name, value in request.headers.raw) > HEADERS_KIB * 1024:
        raise Answer(400, f"header fields larger than {HEADERS_KIB} KiB")
    limit = rules.limits.body_kib * 1024
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise Answer(413, f"body larger than {rules.limits.body_kib} KiB")
    body = bytearray()
    try:
        async with asyncio.timeout(rules.limits.body_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Answer(413, f"body larger than {rules.limits.body_kib} KiB")
    except TimeoutError:
        raise Answer(400, f"body did not arrive within {rules.limits.body_s:g} s") from None
    except ClientDisconnect:
        raise Answer(400, "body ended early") from None
    return bytes(body)


def _sender(request: Request, body: bytes, receiver: Receiver, told: Told) -> Sender:
    try:
        sender = sender_of(Headers(request.headers.raw), body, receiver.secrets, time.time())
    except Refused as error:
        receiver.failures.wait_s(told.address, time.monotonic())
        raise Answer(401, "not authenticated", str(error)) from None
    if not DELIVERY.fullmatch(sender.delivery):
        raise Answer(
            400, "X-Virtscale-Delivery: give an id of 1 to 128 letters, digits, '.', '_', ':' or '-'"
        )
    if sender.proof and receiver.proofs.is_replayed(sender.proof, sender.delivery, time.monotonic()):
        raise Answer(409, "this signature was used before, with another delivery id")
    return sender


def _asked(sender: Sender, body: bytes) -> Asked:
    """What the body asks for; of GitHub's events only a repository_dispatch says anything."""
    try:
        content = json.loads(body.decode() or "{}", object_pairs_hook=_once, parse_constant=_no_number)
        _storable(content)
        if sender.form == "github":
            return Asked(parameters=content.get("client_payload") or {})
        return Asked.model_validate(content)
    except ValidationError as error:
        raise Answer(400, first_of(error)) from None
    except (ValueError, AttributeError, RecursionError) as error:
        raise Answer(400, f"body: not a JSON object: {' '.join(str(error).split())[:200]}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key is there twice")
    return content


def _storable(content: Any) -> None:
    """Half a character, or a zero one, is JSON, but no database takes it."""
    text = json.dumps(content, ensure_ascii=False)
    text.encode()
    if "\\u0000" in text:
        raise ValueError("a character is zero")


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


async def _started(starter: Starter, hook: Hook, told: Told, asked: Asked) -> tuple[int, dict[str, Any]]:
    try:
        fields = allowed(hook, asked.parameters)
        tags = ("webhook", f"hook:{told.hook}")
        order = Order(hook.deployment, fields, f"webhook:{told.hook}:{told.form}:{told.delivery}", tags)
        if asked.dry_run:
            return 200, {"dry_run": True, "parameters": await starter.check(order)}
        run = await starter.start(order)
    except Unacceptable as error:
        raise Answer(400, str(error)) from None
    except NoDeployment as error:
        raise Answer(404, str(error)) from None
    except Contradiction as error:
        raise Answer(409, str(error)) from None
    except PrefectAway as error:
        raise Answer(503, "Prefect does not answer; send the same delivery again", str(error), 5.0) from None
    except VirtscaleError as error:
        raise Answer(400, str(error)) from None
    told.run_id = run.run_id
    return 202, {"run_id": run.run_id, "name": run.name, "url": run.url, "delivery": told.delivery}
