"""The one seam between virtscale and a cluster: plain dict manifests, errors by what to do.

Every cluster (virtual, served, testbed, real) and every controller of the virtual cluster
speaks through `Cluster`. Objects returned are read-only: never mutate what a call or a watch
gave you, others share it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from infra.cluster.kinds import Kind, kind_of

Object = dict[str, Any]
"""One Kubernetes object as decoded JSON; read-only once returned."""


class Ref(NamedTuple):
    """Which object: kind, namespace (empty for cluster-wide kinds), name."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        """How messages name an object: `VirtualMachine ns/name`."""
        return f"{self.kind.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


def ref_of(obj: Mapping[str, Any]) -> Ref:
    """The reference of an object that says its own apiVersion and kind."""
    meta = obj["metadata"]
    return Ref(kind_of(obj["apiVersion"], obj["kind"]), meta.get("namespace", ""), meta["name"])


class ObjectList(NamedTuple):
    """One page of a list: `continue_` is empty on the last page."""

    items: list[Object]
    resource_version: str
    continue_: str


class WatchEvent(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK (then only the resource version counts)."""

    type: str
    object: Object


class WatchBatch(NamedTuple):
    """Events that arrived together; `received_ns` is the observer's clock before any parsing."""

    received_ns: int
    events: list[WatchEvent]


class Scope(NamedTuple):
    """What a list or watch covers; selectors in Kubernetes' own syntax, empty means all."""

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""


def _may_go() -> None:
    """Nobody wants to know."""


departing: ContextVar[Callable[[], None]] = ContextVar("departing", default=_may_go)
"""Called when a request's turn has come, just before it is sent; what it raises keeps it from being sent."""


class Cluster(Protocol):
    """A Kubernetes API, reduced to what virtscale needs; all errors are `infra.errors` ones."""

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create; AlreadyExists, Invalid, Forbidden, Throttled, Unavailable, Unknown."""
        ...

    async def apply(self, obj: Object, manager: str, *, force: bool = False, dry_run: bool = False) -> Object:
        """Server-side apply; Conflict when another manager owns a field and not `force`."""
        ...

    async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        """JSON merge patch (RFC 7386); `subresource` is "" or "status".

        A patch whose metadata carries a resourceVersion is refused with Conflict when stale.
        """
        ...

    async def get(self, ref: Ref) -> Object:
        """Read one object; NotFound."""
        ...

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        """Read a page; limit 0 means everything."""
        ...

    async def delete(
        self, ref: Ref, *, uid: str = "", propagation: str = "Background", grace_s: int | None = None
    ) -> None:
        """Delete; with `uid` only if it is that very object (Conflict otherwise); NotFound."""
        ...

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        """`start`, `stop` of a VirtualMachine, `binding` of a Pod; Conflict, NotFound, Unavailable."""
        ...

    def watch(self, scope: Scope, resource_version: str) -> AsyncIterator[WatchBatch]:
        """Stream changes after `resource_version` until the server ends the stream cleanly.

        Raises Gone when history is gone (list again), Unavailable when the connection breaks.
        """
        ...

    async def close(self) -> None:
        """Release connections; idempotent."""
        ...


async def list_all(cluster: Cluster, scope: Scope, page: int = 500) -> ObjectList:
    """Every object of a scope, page by page; the resource version is that of the last page."""
    items: list[Object] = []
    answer = await cluster.list(scope, limit=page)
    items += answer.items
    while answer.continue_:
        answer = await cluster.list(scope, limit=page, continue_=answer.continue_)
        items += answer.items
    return ObjectList(items, answer.resource_version, "")


async def feed(stream: AsyncIterator[WatchBatch], take: Callable[[WatchBatch], None]) -> None:
    """Hand every batch of a watch to `take` until the stream ends; it is closed then, however it ends.

    A stream that can do so itself (`feed` of its own) saves a task that wakes up for every batch.
    """
    own: Callable[[Callable[[WatchBatch], None]], Awaitable[None]] | None = getattr(stream, "feed", None)
    if own is not None:
        await own(take)
        return
    try:
        async for batch in stream:
            take(batch)
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
