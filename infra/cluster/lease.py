"""One benchmark per cluster at a time: a Lease in the measured cluster says which, and whose.

Clocks of two machines are never compared: a lease has run out when nobody has changed it for its whole
duration, on the monotonic clock of whoever waits for it. Who works on a run is told apart by machine: on
one machine a lock proves that the process before is dead, on two nothing does but a lease that ran out.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from infra.cluster.kinds import LEASE
from infra.cluster.port import Cluster, Object, Ref
from infra.errors import AlreadyExists, Conflict, InUse, NotFound, StageError

HOLDER = "virtscale.io/holder"
"""Annotation: the holder in words."""
LAST = "virtscale.io/last-holder"
"""Annotation: who had it last and let go, in words."""
WHERE = Ref(LEASE, "default", "virtscale-run")
"""The same for all runs, whatever namespace they measure in; it stays on the cluster, held by nobody."""


class Pace(NamedTuple):
    """Seconds: how long a lease lasts that is not renewed, how often it is renewed, how often looked at."""

    lasts_s: int = 60
    renew_s: float = 15.0
    look_s: float = 2.0


class Holder(NamedTuple):
    """Who wants it: `run` of one store, the machine that works on it; `process` is never twice the same."""

    run: str
    machine: str
    process: str
    words: str

    @property
    def identity(self) -> str:
        """What the lease says."""
        return f"{self.run}/{self.machine}/{self.process}"


class Claim:
    """A process's claim on the lease of a cluster, and what it has seen of that lease so far."""

    def __init__(self, holder: Holder, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self._holder, self._pace, self._clock = holder, pace, clock
        self._seen, self._since_s = "", 0.0
        self._renewed: tuple[str, str] | None = None

    async def tried(self, cluster: Cluster) -> str:
        """Take the lease if it may be taken; in words who has it, empty: we.

        A run takes its own lease on the same machine: whoever goes on with it has seen to it that its process
        before is gone.

        Raises:
            InUse: another machine is at work on the run: it renewed the lease while we looked.
        """
        try:
            lease = await cluster.get(WHERE)
        except NotFound:
            return await self._made(cluster)
        if not self._is_free(lease):
            return words_of(lease)
        try:
            await cluster.patch(WHERE, {"metadata": self._metadata(lease), "spec": self._spec(lease)})
        except (Conflict, NotFound):
            return "somebody who was faster"
        return ""

    async def renew(self, cluster: Cluster) -> None:
        """Say that we are still there.

        Raises:
            StageError: another run has the lease, or had it meanwhile.
            InUse: another process has it for the same run.
        """
        lease = await cluster.get(WHERE)
        holder = _identity(lease)
        if holder != self._holder.identity:
            words = f"the cluster was taken over by {words_of(lease)}: what both measured is not valid"
            raise (StageError if holder and _run(holder) != self._holder.run else InUse)(words)
        await cluster.patch(WHERE, {"metadata": _version(lease), "spec": {"renewTime": _now()}})

    async def release(self, cluster: Cluster) -> None:
        """Let go of the lease, if it is ours."""
        lease = await cluster.get(WHERE)
        if _identity(lease) == self._holder.identity:
            free = {"holderIdentity": "", "renewTime": _now()}
            metadata = _version(lease) | _words("", self._holder.words)
            await cluster.patch(WHERE, {"metadata": metadata, "spec": free})

    async def _made(self, cluster: Cluster) -> str:
        body: Object = {"apiVersion": LEASE.api_version, "kind": LEASE.kind}
        metadata = {
            "name": WHERE.name,
            "namespace": WHERE.namespace,
            "annotations": {HOLDER: self._holder.words},
        }
        try:
            await cluster.create(body | {"metadata": metadata, "spec": self._spec({})})
        except AlreadyExists:
            return "somebody who was faster"
        return ""

    def _is_free(self, lease: Object) -> bool:
        holder = _identity(lease)
        if not holder or holder.rpartition("/")[0] == f"{self._holder.run}/{self._holder.machine}":
            return True
        self._check_elsewhere(lease)
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen:
            self._seen, self._since_s = version, self._clock()
        lasts_s = lease["spec"].get("leaseDurationSeconds") or self._pace.lasts_s
        return self._clock() - self._since_s >= lasts_s

    def _check_elsewhere(self, lease: Object) -> None:
        """Nothing, unless the same run is at work on another machine.

        Raises:
            InUse: it is: it renewed its lease since we looked last.
        """
        before = self._renewed
        self._renewed = (_identity(lease), str(lease["spec"].get("renewTime") or ""))
        is_alive = before is not None and before[0] == self._renewed[0] and before != self._renewed
        if is_alive and _run(self._renewed[0]) == self._holder.run:
            raise InUse(
                f"{words_of(lease)}, is at work on another machine: wait until it has ended, or stop it there"
            )

    def _metadata(self, lease: Object) -> Object:
        return _version(lease) | _words(self._holder.words)

    def _spec(self, lease: Object) -> Object:
        before = lease.get("spec") or {}
        return {
            "holderIdentity": self._holder.identity,
            "leaseDurationSeconds": self._pace.lasts_s,
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": (before.get("leaseTransitions") or 0) + 1,
        }


def words_of(lease: Object) -> str:
    """The holder of a lease: `run 7f3a-quiet-heron of ada@bastion, pid 4711, since 18:31:26 UTC`."""
    annotations = lease["metadata"].get("annotations") or {}
    since = str((lease.get("spec") or {}).get("acquireTime") or "")[11:19]
    who = annotations.get(HOLDER) or _identity(lease) or annotations.get(LAST) or "somebody who let go of it"
    return f"{who}{f', since {since} UTC' if since else ''}"


def _run(identity: str) -> str:
    return identity.rpartition("/")[0].rpartition("/")[0]


def _identity(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _version(lease: Object) -> dict[str, Any]:
    return {"resourceVersion": lease["metadata"]["resourceVersion"]}


def _words(words: str, last: str = "") -> dict[str, Any]:
    return {"annotations": {HOLDER: words or None, LAST: last or None}}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
