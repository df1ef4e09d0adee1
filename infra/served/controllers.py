"""The control plane of a served cluster: an object that a controller cannot read does not end it.

A real API server's schemas keep such objects out, and real controllers survive the rest; in the model an
error like this is a mistake of ours and ends it, which would be hard on people who try things out.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from infra.cluster.kinds import Kind
from infra.cluster.port import Object
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.informer import Handler, Informer, Key
from infra.cluster.virtual.work_queue import WorkQueue
from infra.errors import ClusterError

LOG = logging.getLogger("virtscale.served")
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError)


class PatientPlane(ControlPlane):
    """Objects that cannot be read are logged; their keys are tried again, ever later."""

    def informer(self, kind: Kind) -> Informer:
        """The shared cache of a kind, whose handlers may fail."""
        if kind not in self._informers:
            self._informers[kind] = _PatientInformer.like(super().informer(kind))
        return self._informers[kind]

    def queue(self, reconcile: Callable[[Key], Awaitable[None]], workers: int, name: str) -> WorkQueue[Key]:
        """A work queue that puts aside what cannot be read."""

        async def patiently(key: Key) -> None:
            try:
                await reconcile(key)
            except UNREADABLE as error:
                _log(name, "/".join(key), error)
                raise ClusterError(f"{name}: {key} cannot be read") from error

        return super().queue(patiently, workers, name)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run work on one object, whatever becomes of it."""
        super().spawn(_patiently(coroutine, name), name)


class _PatientInformer(Informer):
    @classmethod
    def like(cls, informer: Informer) -> "_PatientInformer":
        return cls(informer._cluster, informer._clock, informer._scope)

    def on_change(self, handler: Handler) -> None:
        """Add a handler that may fail."""

        def patiently(what: str, obj: Object, before: Object | None) -> None:
            try:
                handler(what, obj, before)
            except UNREADABLE as error:
                meta = obj["metadata"]
                _log(f"informer of {obj['kind']}", f"{meta.get('namespace', '')}/{meta['name']}", error)

        super().on_change(patiently)


async def _patiently(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except UNREADABLE as error:
        _log(name, "", error)


def _log(who: str, what: str, error: Exception) -> None:
    LOG.warning("%s %s cannot be read: %s: %s", who, what, type(error).__name__, error)
