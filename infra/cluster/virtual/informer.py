"""A controller's cache of one scope, kept by the same list-and-watch as everybody's."""

import asyncio
from collections.abc import Callable

from infra.clock import Clock
from infra.cluster.port import Cluster, Object, Scope, WatchBatch
from infra.cluster.reflector import Listed, Notice, Reflector

Handler = Callable[[str, Object, Object | None], None]
"""Told of a change: ADDED | MODIFIED | DELETED, the object, the cached one before."""
Key = tuple[str, str]


def key_of(obj: Object) -> Key:
    """Namespace and name."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


class Informer:
    """The objects of a scope by (namespace, name), as far as this client has heard."""

    def __init__(self, cluster: Cluster, clock: Clock, scope: Scope) -> None:
        self._cluster = cluster
        self._clock = clock
        self._scope = scope
        self._handlers: list[Handler] = []
        self.cache: dict[Key, Object] = {}
        self.synced = asyncio.Event()

    def on_change(self, handler: Handler) -> None:
        """Add a handler; all are called in the order in which they were added."""
        self._handlers.append(handler)

    async def run(self) -> None:
        """List, then watch for ever; lists again when history is gone."""
        await Reflector(self._cluster, self._scope, self._clock).follow(self._notice)

    def _notice(self, notice: Notice) -> None:
        if type(notice) is WatchBatch:
            for what, obj in notice.events:
                if what != "BOOKMARK":
                    self._take(what, obj)
        elif type(notice) is Listed:
            self._replace(notice.items)
            self.synced.set()

    def _replace(self, items: list[Object]) -> None:
        known = dict(self.cache)
        seen = {key_of(obj) for obj in items} if known else ()
        for key, obj in known.items():
            if key not in seen:
                self._take("DELETED", obj)
        for obj in items:
            self._take("MODIFIED" if known and key_of(obj) in known else "ADDED", obj)

    def _take(self, what: str, obj: Object) -> None:
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        cache = self.cache
        before = cache.get(key)
        if what != "DELETED":
            cache[key] = obj
        elif before is not None:
            del cache[key]
        for handler in self._handlers:
            handler(what, obj, before)
