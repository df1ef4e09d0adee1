"""A `Cluster` for components that never give up: what the API server did not carry out is sent again.

As kubelets and controllers do: an API server that is away for a minute must not end the virtual ones.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from infra.cluster.port import Cluster, Object, ObjectList, Ref, Scope, WatchBatch
from infra.errors import AlreadyExists, Conflict, Expired, Throttled, Unavailable, Unknown

T = TypeVar("T")
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0


class PatientCluster:
    """Writes are sent until they are answered; reads and watches have their own way of being patient."""

    def __init__(self, inner: Cluster) -> None:
        self._inner = inner

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """See `Cluster`; AlreadyExists may be one's own, carried out without an answer."""
        return await _sent_until_answered(lambda: self._inner.create(obj, dry_run=dry_run))

    async def apply(self, obj: Object, manager: str, *, force: bool = False, dry_run: bool = False) -> Object:
        """See `Cluster`."""
        return await _sent_until_answered(
            lambda: self._inner.apply(obj, manager, force=force, dry_run=dry_run)
        )

    async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        """See `Cluster`."""
        return await _sent_until_answered(lambda: self._inner.patch(ref, merge, subresource=subresource))

    async def get(self, ref: Ref) -> Object:
        """See `Cluster`."""
        return await _sent_until_answered(lambda: self._inner.get(ref))

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        """See `Cluster`."""
        return await self._inner.list(scope, limit=limit, continue_=continue_)

    async def delete(
        self, ref: Ref, *, uid: str = "", propagation: str = "Background", grace_s: int | None = None
    ) -> None:
        """See `Cluster`; NotFound may be one's own doing, carried out without an answer."""
        await _sent_until_answered(
            lambda: self._inner.delete(ref, uid=uid, propagation=propagation, grace_s=grace_s)
        )

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        """See `Cluster`; after a lost answer a Conflict says that it was carried out."""
        was_lost = False

        async def send() -> None:
            nonlocal was_lost
            try:
                await self._inner.subresource(ref, verb, body)
            except Unknown:
                was_lost = True
                raise
            except (Conflict, AlreadyExists):
                if not was_lost:
                    raise

        await _sent_until_answered(send)

    def watch(self, scope: Scope, resource_version: str) -> AsyncIterator[WatchBatch]:
        """See `Cluster`."""
        return self._inner.watch(scope, resource_version)

    async def close(self) -> None:
        """See `Cluster`."""
        await self._inner.close()


async def _sent_until_answered(call: Callable[[], Awaitable[T]]) -> T:
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except Throttled as error:
            pause_s = max(pause_s, error.retry_after_s)
        except (Unavailable, Unknown, Expired):
            pass
        await asyncio.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
