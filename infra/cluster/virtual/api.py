"""The virtual API server: the store behind the `Cluster` port, with what an API costs.

A call waits for its client's token bucket, then for one of the server's workers, then for the
round trip; only then does it read or write. In process this is one timer per call.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import NamedTuple

from infra.cluster.kinds import EVENT, NAMESPACE, POD, SUBJECT_ACCESS_REVIEW, VM, Kind, kind_of
from infra.cluster.port import Object, ObjectList, Ref, Scope, WatchBatch, WatchEvent
from infra.cluster.virtual.apply import Request, apply
from infra.cluster.virtual.description import Description, Rate
from infra.cluster.virtual.garbage import GarbageCollector
from infra.cluster.virtual.hub import Hub
from infra.cluster.virtual.limits import Servers, TokenBucket
from infra.cluster.virtual.loop import VirtualClock, VirtualLoop
from infra.cluster.virtual.selectors import predicate
from infra.cluster.virtual.store import Store, validated
from infra.errors import NotFound, Unavailable

SubresourceHandler = Callable[[str, str, Object], Awaitable[None]]
"""Serves one verb: namespace, name, body."""


_new = tuple.__new__


class ApiServer:
    """One API server on one virtual loop; `client` gives each component its own rate limit.

    `waits` adds up how long clients held their calls back, ns, by second of the clock.
    """

    def __init__(self, loop: VirtualLoop, description: Description, seed: int) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.description = description
        self.store = Store(self._publish, uid_salt=seed)
        self.subresources: dict[tuple[Kind, str], SubresourceHandler] = {}
        self._hubs: dict[Kind, Hub] = {}
        api = description.api
        self.servers = Servers(api.workers)
        self.latency_ns = round(api.latency_s * 1e9)
        self.service_ns = round(api.service_s * 1e9)
        self.waits: dict[int, int] = {}
        self.webhook_ns = round(api.webhook_s * 1e9)
        self.garbage = GarbageCollector(
            loop, self.store, self.bucket(description.rates.controller_manager), self.stamp
        )
        self.garbage.lag_ns = round(api.watch_lag_s * 1e9)
        self._stamp = (-1, "")

    def bucket(self, rate: Rate) -> TokenBucket:
        """A client's token bucket; unlimited when limits are switched off."""
        return TokenBucket(rate.qps if self.description.limits_on else 0, rate.burst, self.waits)

    def client(self, rate: Rate | None = None) -> "VirtualClient":
        """A client of this API server with its own rate limit (None: unlimited)."""
        return VirtualClient(self, self.bucket(rate or Rate(qps=0, burst=0)))

    def stamp(self) -> str:
        """Virtual wall time in the API's resolution of one second."""
        second = self.loop.now_ns // 1_000_000_000
        if self._stamp[0] != second:
            self._stamp = (second, self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ"))
        return self._stamp[1]

    def hub(self, kind: Kind) -> Hub:
        """The watches of a kind."""
        found = self._hubs.get(kind)
        if found is None:
            api = self.description.api
            found = self._hubs[kind] = Hub(kind, self.loop, api.watch_lag_s, api.history)
        return found

    def clear(self) -> None:
        """Let go of all objects and of what is remembered of them."""
        self.store.clear()
        self._hubs.clear()

    def _publish(self, kind: Kind, what: str, obj: Object, before: Object | None) -> None:
        hub = self._hubs.get(kind) or self.hub(kind)
        # every write comes by here: a NamedTuple's own constructor is a Python call
        event = _new(WatchEvent, (what, obj))
        hub.publish((self.store.resource_version, event, before))
        if what == "DELETED":
            self.garbage.removed(obj)


class _Page(NamedTuple):
    """What a continue token stands for: the rest of one consistent list."""

    items: list[Object]
    resource_version: str


class VirtualClient:
    """One component's view of the API server: the `Cluster` port."""

    def __init__(self, server: ApiServer, bucket: TokenBucket) -> None:
        self._server = server
        self._store = server.store
        self._loop = server.loop
        self.bucket = bucket
        self._pages: dict[str, _Page] = {}
        self._tokens = count()

    def _call(self, service_ns: int, extra_ns: int = 0) -> Awaitable[None]:
        """The time a call takes: one timer, or two when the client's own limit holds it back."""
        loop, server = self._loop, self._server
        now = loop.now_ns
        leaves = self.bucket.reserve(now)
        if leaves > now:
            return self._throttled(leaves, service_ns, extra_ns)
        return loop.wake_at(server.servers.reserve(now, service_ns) + server.latency_ns + extra_ns)

    async def _throttled(self, leaves_ns: int, service_ns: int, extra_ns: int) -> None:
        loop, server = self._loop, self._server
        await loop.wake_at(leaves_ns)
        await loop.wake_at(server.servers.reserve(leaves_ns, service_ns) + server.latency_ns + extra_ns)

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Add an object to the store; Events are charged and, unless asked for, not kept."""
        validated(obj)
        kind = kind_of(obj["apiVersion"], obj["kind"])
        server = self._server
        if kind is EVENT and obj.get("type") == "Normal" and not server.description.api.normal_events:
            # a recorder sends in the background: the caller does not wait, its client's tokens go
            self.bucket.reserve(self._loop.now_ns)
            return obj
        await self._call(server.service_ns, server.webhook_ns if kind is VM else 0)
        if kind is SUBJECT_ACCESS_REVIEW:
            return {**obj, "status": {"allowed": True}}
        if kind is NAMESPACE:
            obj = {**obj, "status": {"phase": "Active"}}
        return self._store.create(obj, server.stamp(), dry_run=dry_run)

    async def apply(self, obj: Object, manager: str, *, force: bool = False, dry_run: bool = False) -> Object:
        """Server-side apply."""
        validated(obj)
        await self._call(self._server.service_ns)
        return apply(self._store, obj, Request(manager, self._server.stamp(), force, dry_run))

    async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        """Merge patch."""
        await self._call(self._server.service_ns)
        return self._store.patch(ref, merge, subresource)

    async def get(self, ref: Ref) -> Object:
        """Read one object."""
        await self._call(self._server.service_ns // 4)
        return self._store.get(ref)

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        """Read a page of one consistent list."""
        await self._call(self._server.service_ns)
        page = self._pages.pop(continue_, None) if continue_ else self._whole(scope)
        if page is None:
            raise Unavailable("the continue token is not known")
        items = page.items
        if not limit or len(items) <= limit:
            return ObjectList(items, page.resource_version, "")
        # clients list several kinds at once: a token is never made twice
        token = f"{page.resource_version}-{next(self._tokens)}"
        self._pages[token] = _Page(items[limit:], page.resource_version)
        return ObjectList(items[:limit], page.resource_version, token)

    def _whole(self, scope: Scope) -> _Page:
        matches = predicate(scope.labels, scope.fields)
        shelf = self._store.objects(scope.kind)
        items = [obj for key, obj in shelf.items() if not scope.namespace or key[0] == scope.namespace]
        if matches is not None:
            items = [obj for obj in items if matches(obj)]
        return _Page(items, str(self._store.resource_version))

    async def delete(
        self, ref: Ref, *, uid: str = "", propagation: str = "Background", grace_s: int | None = None
    ) -> None:
        """Delete; dependents follow in the background."""
        await self._call(self._server.service_ns)
        server = self._server
        if ref.kind is NAMESPACE:
            self._store.patch(ref, {"metadata": {"finalizers": ["kubernetes"]}})
            server.loop.call_at_ns(
                server.loop.now_ns + server.garbage.lag_ns, server.garbage.empty_namespace, ref.name
            )
        self._store.delete(ref, server.stamp(), uid=uid, grace_s=grace_s)

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        """`binding` of a Pod here; the rest by whoever serves that verb (virt-api)."""
        await self._call(self._server.service_ns)
        if ref.kind is POD and verb == "binding":
            self._bind(ref, body or {})
            return
        handler = self._server.subresources.get((ref.kind, verb))
        if handler is None:
            raise NotFound(f"the server could not find the requested resource ({ref.kind.plural}/{verb})")
        await handler(ref.namespace, ref.name, body or {})

    def _bind(self, ref: Ref, body: Object) -> None:
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._server.stamp()}
        pod = self._store.get(ref)
        spec = {**pod["spec"], "nodeName": body["target"]["name"]}
        status = {**pod.get("status", {}), "conditions": [condition]}
        self._store.replace(ref, {**pod, "spec": spec, "status": status})

    def watch(self, scope: Scope, resource_version: str) -> AsyncIterator[WatchBatch]:
        """Open a watch at once: changes from now on are not missed."""
        matches = predicate(scope.labels, scope.fields)
        return self._server.hub(scope.kind).open(scope.namespace, matches, int(resource_version or 0))

    async def close(self) -> None:
        """Nothing is held."""
