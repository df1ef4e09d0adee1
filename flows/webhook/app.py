"""The receiver as an ASGI application: who, what, how often; then one run, and an answer that says which.

Answers: 202 a run (new, or that of the same delivery), 200 a dry run, GitHub's ping or an event that starts
nothing, 400 what is wrong and where, 401, 404, 409 the delivery id or signature was used for something else,
413, 429, 503 try again.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from flows.webhook.events import KINDS, Event, Foreign, SenderName, event_of
from flows.webhook.pace import Buckets, Pace, Proofs
from flows.webhook.rules import Rules, Unacceptable, allowed, chosen, first_of, taken
from flows.webhook.signatures import (
    DELIVERY,
    WINDOW_S,
    Headers,
    Refused,
    Secrets,
    Sender,
    event_sender_of,
    sender_of,
)
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
        *(Route(f"/events/{name}", partial(events, name), methods=["POST"]) for name in KINDS),
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
    """One delivery that asks for a run."""
    return await _answered(request, request.path_params["hook"], _delivered)


async def events(name: SenderName, request: Request) -> Response:
    """One of a sender's own events."""
    return await _answered(request, f"events/{name}", partial(_heard, name))


async def _answered(
    request: Request,
    hook: str,
    handled: Callable[[Request, Told], Awaitable[tuple[int, dict[str, Any]]]],
) -> Response:
    began_s = time.monotonic()
    told = Told(hook, request.client.host if request.client else "")
    try:
        status, content = await handled(request, told)
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
    _not_refused_too_often(receiver, told)
    body = await _body(request, receiver.rules, receiver.rules.limits.body_kib)
    sender = _sender(request, body, receiver, told)
    hook = receiver.rules.hooks.get(told.hook)
    if hook is None:
        raise Answer(404, "no such hook")
    _not_too_many(receiver)
    if sender.event == "ping":
        return 200, {"pong": True}
    asked = _asked(sender, body)
    try:
        fields = allowed(hook, asked.parameters)
    except Unacceptable as error:
        raise Answer(400, str(error)) from None
    key = f"webhook:{told.hook}:{told.form}:{told.delivery}"
    order = Order(hook.deployment, fields, key, ("webhook", f"hook:{told.hook}"))
    return await _started(request.app.state.starter, told, order, asked.dry_run)


async def _heard(name: SenderName, request: Request, told: Told) -> tuple[int, dict[str, Any]]:
    """An event starts what the first rule that it fulfils says; what no rule names is heard, and no more."""
    receiver: Receiver = request.app.state.receiver
    _not_refused_too_often(receiver, told)
    body = await _body(request, receiver.rules, receiver.rules.limits.event_kib)
    sender = _event_sender(name, request, body, receiver, told)
    _not_too_many(receiver)
    if sender.event == "ping":
        return 200, {"pong": True}
    event = _event(name, sender, body)
    told.delivery = sender.delivery or event.delivery
    rule_name, rule = chosen(receiver.rules, event)
    if rule is None:
        told.reason = rule_name
        return 200, {"started": False, "reason": rule_name}
    key = f"webhook:events/{rule_name}:{told.form}:{told.delivery}"
    order = Order(rule.deployment, taken(rule, event), key, ("webhook", f"event:{rule_name}"))
    return await _started(request.app.state.starter, told, order, rule.dry_run)


def _not_refused_too_often(receiver: Receiver, told: Told) -> None:
    if wait_s := receiver.failures.wait_s(told.address, time.monotonic(), cost=0.0):
        raise Answer(429, "too many refused requests", wait_s=wait_s)


def _not_too_many(receiver: Receiver) -> None:
    if wait_s := receiver.genuine.wait_s("", time.monotonic()):
        raise Answer(429, "too many requests", wait_s=wait_s)


async def _body(request: Request, rules: Rules, limit_kib: int) -> bytes:
    """The body, if it is small and comes soon."""
    if sum(len(name) + len(value) for name, value in request.headers.raw) > HEADERS_KIB * 1024:
        raise Answer(400, f"header fields larger than {HEADERS_KIB} KiB")
    limit = limit_kib * 1024
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise Answer(413, f"body larger than {limit_kib} KiB")
    body = bytearray()
    try:
        async with asyncio.timeout(rules.limits.body_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Answer(413, f"body larger than {limit_kib} KiB")
    except TimeoutError:
        raise Answer(400, f"body did not arrive within {rules.limits.body_s:g} s") from None
    except ClientDisconnect:
        raise Answer(400, "body ended early") from None
    return bytes(body)


def _sender(request: Request, body: bytes, receiver: Receiver, told: Told) -> Sender:
    headers = Headers(request.headers.raw)
    sender = _proven(lambda: sender_of(headers, body, receiver.secrets, time.time()), receiver, told)
    if not DELIVERY.fullmatch(sender.delivery):
        raise Answer(
            400, "X-Virtscale-Delivery: give an id of 1 to 128 letters, digits, '.', '_', ':' or '-'"
        )
    if sender.proof and receiver.proofs.is_replayed(sender.proof, sender.delivery, time.monotonic()):
        raise Answer(409, "this signature was used before, with another delivery id")
    return sender


def _event_sender(name: SenderName, request: Request, body: bytes, receiver: Receiver, told: Told) -> Sender:
    headers = Headers(request.headers.raw)
    sender = _proven(
        lambda: event_sender_of(name, headers, body, receiver.secrets, time.time()), receiver, told
    )
    if name == "gitlab" and not DELIVERY.fullmatch(sender.delivery):
        raise Answer(400, "Idempotency-Key, X-Gitlab-Event-UUID, webhook-id: none is there with an id")
    return sender


def _proven(prove: Callable[[], Sender], receiver: Receiver, told: Told) -> Sender:
    try:
        sender = prove()
    except Refused as error:
        receiver.failures.wait_s(told.address, time.monotonic())
        raise Answer(401, "not authenticated", str(error)) from None
    told.form, told.delivery = sender.form, sender.delivery
    return sender


def _asked(sender: Sender, body: bytes) -> Asked:
    """What the body asks for; of GitHub's events only a repository_dispatch asks for anything."""
    content = _content(body, _storable)
    try:
        if sender.form == "github":
            return Asked(parameters=_dispatched(sender.event, content))
        return Asked.model_validate(content)
    except ValidationError as error:
        raise Answer(400, first_of(error)) from None


def _dispatched(event: str, content: dict[str, Any]) -> Any:
    """GitHub signs no header: what calls itself a dispatch must look like one."""
    if event != "repository_dispatch":
        raise Answer(
            400, f"{event[:80] or 'no event'}: a hook takes repository_dispatch, /events/github others"
        )
    if not isinstance(content.get("action"), str) or "client_payload" not in content:
        raise Answer(400, "action, client_payload: missing, so this is no repository_dispatch")
    return content["client_payload"] or {}


def _event(name: SenderName, sender: Sender, body: bytes) -> Event:
    try:
        return event_of(name, sender.event, _content(body))
    except ValidationError as error:
        raise Answer(400, first_of(error)) from None
    except Foreign as error:
        raise Answer(400, str(error)) from None


def _content(body: bytes, checked: Callable[[Any], None] = lambda content: None) -> dict[str, Any]:
    try:
        content = json.loads(body.decode() or "{}", object_pairs_hook=_once, parse_constant=_no_number)
        checked(content)
    except (ValueError, RecursionError) as error:
        raise Answer(400, f"body: not a JSON object: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        raise Answer(400, "body: not a JSON object")
    return content


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


async def _started(starter: Starter, told: Told, order: Order, dry_run: bool) -> tuple[int, dict[str, Any]]:
    try:
        if dry_run:
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
