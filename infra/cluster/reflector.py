"""One observer of a scope: lists, watches, resumes, lists again when history is gone.

A watch that ends cleanly is resumed at the last resource version: nothing is missed, it is only
counted. After a broken connection it is resumed as well, but nobody looked meanwhile: a Gap. When
the server no longer keeps the version (Gone), the Gap is followed by a new Listed.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from infra.clock import Clock
from infra.cluster.port import Cluster, Object, Scope, WatchBatch, feed, list_all
from infra.errors import Expired, Gone, Throttled, Unavailable, Unknown, Unreachable

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
"""Who pauses longer is blind for longer than the server was away."""
ANSWERED = 2
"""So many failures are remembered of a server that answers again: it is asked again within half a second."""
LIVED_S = 1.0
"""A watch that broke sooner, without a word, was none: nobody has looked since the one before it."""
LOGIN_PATIENCE_S = 120.0
"""How long an observer waits for a new token after its own was refused."""
TRANSIENT = (Unavailable, Unknown, Unreachable, Throttled, Expired)


class Listed(NamedTuple):
    """All objects of the scope at `ns`: what is not in it does not exist."""

    items: list[Object]
    ns: int


Changed = WatchBatch
"""Changes as the watch delivered them, bookmarks included; shared and read-only."""


class Gap(NamedTuple):
    """Nobody was looking between these two moments of the observer's clock."""

    from_ns: int
    to_ns: int


Notice = Listed | Changed | Gap


class Reflector:
    """Observes one scope; `resumed`, `relists` and `broken` count what happened to its watch.

    `looks` is False from the moment at which a watch was lost until its Gap. `noted` is told of each
    `resumed` and `relists`, and when (ns).
    """

    def __init__(self, cluster: Cluster, scope: Scope, clock: Clock) -> None:
        self.resumed = 0
        self.relists = 0
        self.broken = 0
        self.looks = True
        self.noted: Callable[[str, int], None] = _unnoted
        self._cluster = cluster
        self._scope = scope
        self._clock = clock
        self._version = ""
        self._heard_ns = 0
        self._opened_ns = 0
        self._looked_ns = 0
        self._failures = 0
        self._expired_ns: int | None = None
        self._jitter = Random(str(scope))
        self._take: Callable[[Notice], None] = _ignored

    async def follow(self, take: Callable[[Notice], None]) -> None:
        """Hand everything to `take`: Listed first, then changes and gaps, for ever."""
        self._take = take
        take(await self._list())
        while True:
            try:
                await self._watch()
                self.resumed += 1
                self.noted("resumed", self._clock.now_ns())
                await self._breathe()
            except Gone as error:
                self.relists += 1
                self.noted("relists", self._clock.now_ns())
                self.looks, lost_ns = False, self._lost()
                if self._said_nothing():
                    await self._pause(error)
                listed = await self._list()
                self.looks = True
                take(Gap(lost_ns, listed.ns))
                take(listed)
            except TRANSIENT as error:
                self.broken += 1
                self.looks, lost_ns = False, self._lost()
                await self._pause(error)
                answered_ns = await self._answered()
                self.looks = True
                take(Gap(lost_ns, answered_ns))

    async def _watch(self) -> None:
        self._opened_ns = self._clock.now_ns()
        await feed(self._cluster.watch(self._scope, self._version), self._hear)

    def _hear(self, batch: WatchBatch) -> None:
        self._version = batch.events[-1].object["metadata"]["resourceVersion"]
        self._heard_ns = self._looked_ns = batch.received_ns
        self._failures = 0
        self._take(batch)

    async def _breathe(self) -> None:
        """A server that ends every watch at once is not asked in a busy loop."""
        now_ns = self._clock.now_ns()
        if self._said_nothing() and now_ns - self._opened_ns < FIRST_PAUSE_S * 1e9:
            await self._clock.sleep(FIRST_PAUSE_S)
        self._heard_ns = self._looked_ns = now_ns

    def _lost(self) -> int:
        """Since when nobody looks."""
        if self._clock.now_ns() - self._opened_ns >= LIVED_S * 1e9:
            self._looked_ns = self._heard_ns
        return self._looked_ns

    def _said_nothing(self) -> bool:
        return self._heard_ns <= self._opened_ns

    async def _list(self) -> Listed:
        while True:
            try:
                answer = await list_all(self._cluster, self._scope)
            except (*TRANSIENT, Gone) as error:
                await self._pause(error)
                continue
            self._version, self._heard_ns = answer.resource_version, self._clock.now_ns()
            self._expired_ns, self._looked_ns = None, self._heard_ns
            return Listed(answer.items, self._heard_ns)

    async def _answered(self) -> int:
        """When the API server answered again; the watch goes on from there without loss."""
        while True:
            try:
                await self._cluster.list(self._scope, limit=1)
            except TRANSIENT as error:
                await self._pause(error)
                continue
            self._heard_ns, self._expired_ns = self._clock.now_ns(), None
            self._failures = min(self._failures, ANSWERED)
            return self._heard_ns

    async def _pause(self, error: Exception) -> None:
        """Exponential, jittered (0.5 to 1 of it); what the server asks for when it says so."""
        self._give_up_without_login(error)
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        asked = error.retry_after_s if isinstance(error, Throttled) else 0.0
        await self._clock.sleep(max(asked, longest * self._jitter.uniform(0.5, 1.0)))

    def _give_up_without_login(self, error: Exception) -> None:
        """Raise `error` when nobody has believed who we are for two minutes."""
        if not isinstance(error, Expired):
            self._expired_ns = None
            return
        now_ns = self._clock.now_ns()
        self._expired_ns = now_ns if self._expired_ns is None else self._expired_ns
        if now_ns - self._expired_ns > LOGIN_PATIENCE_S * 1e9:
            raise error


def _ignored(notice: Notice) -> None:
    """Nobody listens yet."""


def _unnoted(what: str, ns: int) -> None:
    """Nobody counts."""
