"""The `Cluster` port over a Kubernetes API server."""

import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import aiohttp
import orjson
from yarl import URL

from infra import settings
from infra.cluster.port import Object, ObjectList, Ref, Scope, WatchBatch, WatchEvent
from infra.cluster.real import requests
from infra.cluster.real.login import Login
from infra.cluster.real.refusals import NO_ANSWER, refusal
from infra.cluster.real.session import Session, log_in
from infra.errors import ClusterError, Expired, Invalid, Throttled, Unavailable, Unknown, Unreachable

OLDEST = (1, 25)
"""The first Kubernetes that refuses unknown fields when asked to: an older one would drop them silently."""

_accepted: set[tuple[str, str]] = set()
"""Contexts and servers whose login this process saw accepted: refused later, it is waited for."""


async def connect(context: str, kubeconfig: str = "") -> "KubernetesCluster":
    """A connected cluster; the API server has answered.

    Args:
        context: A context of the kubeconfig.
        kubeconfig: Its path; by default KUBECONFIG's, then kubectl's own.

    Raises:
        Unreachable: there is no such context, its API server does not answer, does not accept its login, or
            is too old.
    """
    where = kubeconfig or settings.kubeconfig()
    session = Session(await log_in(context, where), where, settings.api_connections())
    try:
        answer = await session.call(requests.Request("GET", "/version", "ask for the version"))
        version = _supported(str((answer or {}).get("gitVersion", "")))
        await _accept(session)
    except Expired as error:
        await session.close()
        raise Unreachable(_not_accepted(session.login, error)) from error
    except ClusterError as error:
        await session.close()
        where = f"{session.login.server}{_through(session.login.proxy)}"
        raise Unreachable(f"context {context}: {where} cannot be used: {error}") from error
    return KubernetesCluster(session, version)


async def _accept(session: Session) -> None:
    """See, once in a process, that the login is accepted: anybody may ask for the version.

    Raises:
        Expired: it is not.
    """
    known = (session.login.context, session.login.server)
    if known in _accepted:
        return
    try:
        await session.call(requests.Request("GET", "/api", "ask for the API's versions"))
    except (Throttled, Unavailable, Unknown):
        return
    except Expired:
        raise
    except ClusterError:
        # Whom the server knows, it may still forbid to ask.
        pass
    _accepted.add(known)


def _not_accepted(login: Login, error: Expired) -> str:
    hint = "log in again, or correct it in the kubeconfig"
    return f"context {login.context}: {login.server} does not accept {login.proof}: {hint} ({error})"


def _through(proxy: str | None) -> str:
    """Which proxy is used, without its user and password."""
    if not proxy:
        return ""
    return f", through the proxy {URL(proxy).origin()} (proxy-url, HTTPS_PROXY or HTTP_PROXY),"


def _supported(version: str) -> str:
    """The version, unless it is none or too old; Invalid then."""
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found is None:
        raise Invalid("it does not answer as a Kubernetes API server does")
    if tuple(map(int, found.groups())) < OLDEST:
        raise Invalid(f"it is Kubernetes {version}; virtscale needs v{OLDEST[0]}.{OLDEST[1]} or later")
    return version


class KubernetesCluster:
    """See `infra.cluster.port.Cluster`; made by `connect`. `version` is the API server's, as `v1.2.3`."""

    def __init__(self, session: Session, version: str) -> None:
        self._session = session
        self.version = version

    @property
    def server(self) -> str:
        """The API server's address."""
        return self._session.login.server

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create; AlreadyExists, Invalid (unknown fields too), Forbidden, Throttled, Unavailable, Unknown.

        Unknown: read back, and take an AlreadyExists of one's own object as created.
        """
        return await self._object(requests.create(obj, dry_run=dry_run))

    async def apply(self, obj: Object, manager: str, *, force: bool = False, dry_run: bool = False) -> Object:
        """Server-side apply; Conflict when another manager owns a field and not `force`."""
        return await self._object(requests.apply(obj, manager, force=force, dry_run=dry_run))

    async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        """JSON merge patch; Conflict when its metadata carries a resourceVersion that is stale."""
        return await self._object(requests.patch(ref, merge, subresource))

    async def get(self, ref: Ref) -> Object:
        """Read one object; NotFound."""
        return await self._object(requests.get(ref))

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        """Read a page; limit 0 means everything; Gone when `continue_` has grown too old."""
        answer = await self._object(requests.page(scope, limit, continue_))
        items: Any = answer.get("items") or []
        for item in items:
            # An item of a list says its kind only where the kind is a custom one.
            item.setdefault("apiVersion", scope.kind.api_version)
            item.setdefault("kind", scope.kind.kind)
        metadata = answer["metadata"]
        return ObjectList(items, metadata["resourceVersion"], metadata.get("continue", ""))

    async def delete(
        self, ref: Ref, *, uid: str = "", propagation: str = "Background", grace_s: int | None = None
    ) -> None:
        """Delete; with `uid` only if it is that very object (Conflict otherwise); NotFound."""
        await self._session.call(requests.delete(ref, uid, propagation, grace_s))

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        """`start`, `stop` of a VirtualMachine, `binding` of a Pod; Conflict, NotFound, Unavailable."""
        await self._session.call(requests.subresource(ref, verb, body))

    async def watch(self, scope: Scope, resource_version: str) -> AsyncGenerator[WatchBatch, None]:
        """Stream changes after `resource_version` until the server ends the stream cleanly.

        Raises Gone when history is gone (list again), Unavailable when the connection breaks.
        """
        request = requests.watch(scope, resource_version)
        try:
            async with self._session.stream(request) as content, aclosing(_lines(content)) as batches:
                async for received_ns, lines in batches:
                    events, end = _events(lines, request.title)
                    if events:
                        yield WatchBatch(received_ns, events)
                    if end is not None:
                        raise end
        except NO_ANSWER as error:
            raise Unavailable(f"{request.title}: the stream broke: {error!r}") from error

    async def close(self) -> None:
        """Release connections; idempotent."""
        await self._session.close()

    async def _object(self, request: requests.Request) -> Object:
        answer: Object = await self._session.call(request)
        return answer


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[tuple[int, list[bytes]], None]:
    """Whole lines as they arrive, each time with the monotonic ns of their arrival, taken before parsing."""
    rest = b""
    async for chunk in content.iter_any():
        received_ns = time.monotonic_ns()
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield received_ns, lines
    if rest:
        raise Unavailable("a watch ended in the middle of an event")


def _events(lines: Sequence[bytes], title: str) -> tuple[list[WatchEvent], ClusterError | None]:
    """The events in `lines`, and the error with which the server ended the watch after them, if it did."""
    events: list[WatchEvent] = []
    for line in lines:
        decoded = orjson.loads(line)
        if decoded["type"] == "ERROR":
            status = decoded["object"]
            return events, refusal(status.get("code", 500), orjson.dumps(status), title, is_read=True)
        events.append(WatchEvent(decoded["type"], decoded["object"]))
    return events, None
