"""What the controllers share: clients, informers, clock, constants, random draws, faults."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from infra.clock import Clock
from infra.cluster.kinds import EVENT, Kind
from infra.cluster.port import Cluster, Object, Scope
from infra.cluster.virtual.component_rates import ComponentRates
from infra.cluster.virtual.description import Description, Rate
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.faults import Faults
from infra.cluster.virtual.informer import Informer, Key, key_of
from infra.cluster.virtual.machines import Machines
from infra.cluster.virtual.work_queue import WorkQueue, serve
from infra.errors import AlreadyExists, NotFound


class ControlPlane:
    """The common ground of all controllers of one virtual cluster, on any world.

    Informers are shared, as they are within one binary: a kind is watched once.
    """

    def __init__(
        self,
        client: Callable[[Rate], Cluster],
        clock: Clock,
        description: Description,
        draws: Draws,
        faults: Faults,
    ) -> None:
        self.client = client
        self.rates = ComponentRates(client, description)
        self.clock = clock
        self.description = description
        self.draws = draws
        self.faults = faults
        self.machines = Machines(clock, description, draws)
        self.copied_classes: set[str] = set()
        """Storage classes whose clones CDI copies through pods."""
        self._reader = client(Rate(qps=0, burst=0))
        self._informers: dict[Kind, Informer] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._pending: list[tuple[Coroutine[Any, Any, None], str]] = []
        self._failed: asyncio.Future[None] | None = None

    def informer(self, kind: Kind) -> Informer:
        """The shared cache of a kind."""
        found = self._informers.get(kind)
        if found is None:
            found = self._informers[kind] = Informer(self._reader, self.clock, Scope(kind))
        return found

    def queue(self, reconcile: Callable[[Key], Awaitable[None]], workers: int, name: str) -> WorkQueue[Key]:
        """A work queue with its workers, which start when the caches are filled."""
        queue: WorkQueue[Key] = WorkQueue(self.clock)
        for number in range(workers):
            self._pending.append((serve(queue, reconcile), f"{name} worker {number}"))
        return queue

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run work on one object beside the workers; it ends when its object goes."""
        self._run(_while_it_exists(coroutine), name)

    def _run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A controller that dies ends the whole control plane: a cluster half alive would lie."""
        self._tasks.pop(task, None)
        if task.cancelled() or task.exception() is None:
            return
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(task.exception() or RuntimeError(task.get_name()))
        task.get_loop().call_exception_handler({"message": task.get_name(), "exception": task.exception()})

    async def failed(self) -> None:
        """Wait until a controller dies, and raise what killed it."""
        if self._failed is not None:
            await asyncio.shield(self._failed)

    async def start(self) -> None:
        """Fill the caches, then start the workers."""
        self._failed = asyncio.get_running_loop().create_future()
        for kind, informer in self._informers.items():
            self._run(informer.run(), f"informer {kind}")
        synced = asyncio.gather(*(informer.synced.wait() for informer in self._informers.values()))
        waits: set[asyncio.Future[Any]] = {synced, self._failed}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            synced.cancel()
            self._failed.result()
        for coroutine, name in self._pending:
            self._run(coroutine, name)
        self._pending.clear()

    async def stop(self) -> None:
        """Cancel everything and wait until it ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._failed is not None:
            self._failed.cancel()
        for coroutine, _ in self._pending:
            coroutine.close()
        self._tasks.clear()
        for informer in self._informers.values():
            informer.cache.clear()


async def _while_it_exists(work: Coroutine[Any, Any, None]) -> None:
    try:  # noqa: SIM105  (asked for every object: a context manager costs as much as the rest)
        await work
    except NotFound:
        pass


class Latest:
    """A controller's view of one kind: its cache, or its own last write when that is newer."""

    def __init__(self, informer: Informer) -> None:
        self._cache = informer.cache
        self._written: dict[Key, Object] = {}
        informer.on_change(self._forget)

    def _forget(self, what: str, obj: Object, _: Object | None) -> None:
        if not self._written:
            return
        key = key_of(obj)
        written = self._written.get(key)
        if written is not None and (
            written is obj or what == "DELETED" or _version(obj) >= _version(written)
        ):
            del self._written[key]

    def get(self, key: Key) -> Object | None:
        """The newest known state; None when the object is not known."""
        return self._written.get(key) or self._cache.get(key)

    def wrote(self, obj: Object) -> Object:
        """Remember the answer to a write; one that comes after the watch told of a later one is no news."""
        key = key_of(obj)
        cached = self._cache.get(key)
        if cached is None or _version(obj) > _version(cached):
            self._written[key] = obj
        return obj


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def unchanged(obj: Object, before: Object) -> bool:
    """Whether only the status differs: a controller's own writes are no news to it.

    For kinds with a status subresource, whose generation counts edits of the spec.
    """
    meta, old = obj["metadata"], before["metadata"]
    return bool(
        meta["generation"] == old["generation"]
        and meta.get("deletionTimestamp") == old.get("deletionTimestamp")
        and meta.get("finalizers") == old.get("finalizers")
    )


def owner_reference(obj: Object) -> Object:
    """A controller reference to `obj`."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def announce(api: Cluster, obj: Object, reason: str, message: str) -> None:
    """Record a Normal Event on `obj`; a repeated one has the same name and is counted upstream."""
    await ensure(api, _event(obj, reason, message))


async def ensure(api: Cluster, obj: Object) -> None:
    """Create an object unless there is one of that name."""
    try:  # noqa: SIM105  (as above)
        await api.create(obj)
    except AlreadyExists:
        pass


def _event(obj: Object, reason: str, message: str) -> Object:
    meta = obj["metadata"]
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "namespace": meta.get("namespace") or "default",
            "name": f"{meta['name']}.{obj['kind'].lower()}.{reason.lower()}.{meta['uid'][-12:]}",
        },
        "type": "Normal",
        "reason": reason,
        "message": message,
        "involvedObject": {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": meta["name"],
            "namespace": meta.get("namespace", ""),
            "uid": meta["uid"],
        },
    }
