"""What a brake looks at while a batch is issued: nodes, instances of others, and the clock."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from infra.clock import Clock
from infra.cluster.kinds import NODE, VMI
from infra.cluster.port import Object, Scope, WatchBatch
from infra.cluster.reflector import Listed, Notice, Reflector
from infra.errors import ClusterError, Forbidden, NotFound
from infra.manifests import RUN_LABEL
from infra.world import World
from tasks.batch import NS
from tasks.brakes import Brake
from tasks.nodes import is_ready
from tasks.thresholds import Brakes

LOOK_S = 1.0
SYNC_LIMIT_S = 30.0
POLL_S = 0.05
FAILING = ("Failed", "Unknown")
"""Phases of an instance that is lost, or whose node is."""


@asynccontextmanager
async def braking(world: World, limits: Brakes) -> AsyncIterator[Brake]:
    """A brake, and what looks for it; where nobody shares the cluster, nothing does."""
    brake = Brake(limits)
    if not limits.are_on(world.name):
        yield brake
        return
    watches = [
        _Watch(Scope(NODE), lambda nodes, _: _nodes(brake, nodes)),
        _Watch(Scope(VMI, labels=f"{RUN_LABEL}!={world.run_id}"), lambda *found: _strangers(brake, *found)),
    ]
    works = [_look(world.clock, brake), *(_follow(world, watch, brake) for watch in watches)]
    tasks = [asyncio.create_task(work, name="brake") for work in works]
    try:
        until_ns = world.clock.now_ns() + SYNC_LIMIT_S * NS
        while not all(watch.is_synced for watch in watches) and world.clock.now_ns() < until_ns:
            await world.clock.sleep(POLL_S)
        if unseen := [watch.scope.kind.kind for watch in watches if not watch.is_synced]:
            brake.blind(f"no list of {' and '.join(unseen)} within {SYNC_LIMIT_S:g} s")
        yield brake
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Seen = list[tuple[str, Object]]
"""Events and their objects."""


@dataclass(slots=True)
class _Watch:
    """A scope, and who is told what is seen of it; with True when that is all there is."""

    scope: Scope
    told: Callable[[Seen, bool], None]
    is_synced: bool = False

    def take(self, notice: Notice) -> None:
        """A notice of its reflector."""
        if isinstance(notice, Listed):
            self.told([("ADDED", obj) for obj in notice.items], True)
            self.is_synced = True
        elif isinstance(notice, WatchBatch):
            self.told([(what, obj) for what, obj in notice.events if what != "BOOKMARK"], False)


async def _follow(world: World, watch: _Watch, brake: Brake) -> None:
    """Without the right to look, or where there is no such kind, nothing is seen; preflight says so."""
    try:
        await Reflector(world.cluster, watch.scope, world.clock).follow(watch.take)
    except (Forbidden, NotFound):
        watch.is_synced = True
    except ClusterError as error:
        watch.is_synced = True
        brake.blind(str(error))


async def _look(clock: Clock, brake: Brake) -> None:
    while True:
        await clock.sleep(LOOK_S)
        brake.look(clock.now_ns())


def _nodes(brake: Brake, seen: Seen) -> None:
    for what, node in seen:
        brake.node(node["metadata"]["name"], is_ready=what != "DELETED" and is_ready(node))


def _is_failing(obj: Object) -> bool:
    """An instance that is stopped may end as Failed as well: nothing is wrong with it."""
    return (obj.get("status") or {}).get("phase") in FAILING and "deletionTimestamp" not in obj["metadata"]


def _strangers(brake: Brake, seen: Seen, is_all: bool) -> None:
    failing = {
        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        for what, obj in seen
        if what != "DELETED" and _is_failing(obj)
    }
    if failing or is_all:
        brake.failing(failing, is_all=is_all)
