"""Heartbeats: inert objects of our own that are touched while a batch is measured.

A watch that says nothing may be quiet or late. An event that we cause ourselves tells which: it
bounds how long a watch can have kept silent about others, and its way measures the watch's lag.
On virtual time the lag is the model's, always the same: beats are sent when a stream has said nothing
for half a second, less and less often while nothing happens, and every ten seconds otherwise. A server
is as late as it likes, so there beats follow one another: a twentieth of the time since the release
apart, a tenth of a second at least and a second at most. Without the right to make such objects there
are none.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from infra import manifests
from infra.clock import Clock
from infra.cluster.kinds import POD, PVC, VM, VMI, Kind
from infra.cluster.port import Ref
from infra.errors import AlreadyExists, ClusterError, Forbidden, NotFound, Throttled, Unavailable, Unknown
from infra.results.port import Attempt
from infra.world import World
from tasks.batch import NS
from tasks.observing import BEAT, Observers, Stream
from tasks.ownership import intend, mark_of

KINDS: tuple[Kind, ...] = (VM, VMI, POD, PVC)
"""Watched kinds of which an inert object can be made; none of a DataVolume, a volume."""
QUIET_S = 0.5
"""A stream that said nothing for so long is made to say something."""
MEASURE_S = 10.0
"""A stream's lag is measured at least so often."""
SLACK = 8.0
"""While nothing happens the pause between two beats grows to this part of the time since then."""
LONGEST_S = 30.0
CLOSEST_S, WIDEST_S = 0.1, 1.0
"""The pause between two beats on a real server: four watched kinds make 40 to 4 patches a second."""
GROWTH = 20.0
"""That pause is this part of the time since the release: early steps are known as well as late ones."""
FIRST_LIMIT_S = 10.0
"""How long the first beat of all streams may take before a batch is released."""
GONE_LIMIT_S = 30.0


def heartbeat_refs(run_id: str, namespace: str, shard: int | None = None) -> list[Ref]:
    """The heartbeat objects of a run, or of one shard of it."""
    return [_heartbeat_ref(kind, run_id, namespace, shard) for kind in KINDS]


def _heartbeat_ref(kind: Kind, run_id: str, namespace: str, shard: int | None) -> Ref:
    whose = "" if shard is None else f"-{shard}"
    # A VM takes an instance of its own name for its own.
    return Ref(kind, namespace, f"{run_id}-heartbeat{whose}{'-instance' if kind is VMI else ''}")


def intend_heartbeats(world: World, attempt: Attempt, namespace: str) -> None:
    """Put them into the ledger, before a batch makes them."""
    shards = [None, *range(world.workers.shards)] if world.workers else [None]
    refs = [ref for shard in shards for ref in heartbeat_refs(world.run_id, namespace, shard)]
    intend(world, attempt, refs)


async def remove_heartbeats(world: World, namespace: str, shard: int) -> None:
    """Delete those of a shard whose process is gone."""
    await _removed(world, heartbeat_refs(world.run_id, namespace, shard))


@asynccontextmanager
async def heartbeats(world: World, observers: Observers, stage: str) -> AsyncIterator[None]:
    """Beat while a batch is measured: made, and heard once, on entry; gone on exit."""
    hearts = await _made(world, observers, stage)
    beating = [
        asyncio.create_task(_beat(world, observers, stream, ref), name=f"heartbeat {ref.kind}")
        for stream, ref in hearts
    ]
    beating.append(asyncio.create_task(_sample_loop(world.clock, observers), name="loop lag"))
    try:
        await _first(world, [stream for stream, _ in hearts])
        yield
    finally:
        for task in beating:
            task.cancel()
        await asyncio.gather(*beating, return_exceptions=True)
        await _removed(world, [ref for _, ref in hearts])


async def _made(world: World, observers: Observers, stage: str) -> list[tuple[Stream, Ref]]:
    made, shard = [], world.shard
    mark = mark_of(world, stage) if shard is None else replace(mark_of(world, stage), slot=shard.slots[0])
    for stream in observers.streams:
        scope = stream.view.scope
        if scope.kind not in KINDS or not scope.namespace:
            continue
        ref = _heartbeat_ref(scope.kind, world.run_id, scope.namespace, shard.number if shard else None)
        manifest = manifests.heartbeat(ref.kind.kind, ref.name, ref.namespace, mark)
        try:
            await world.cluster.create(manifest)
        except AlreadyExists:
            pass
        except ClusterError:
            continue
        stream.is_beaten = True
        made.append((stream, ref))
    return made


async def _first(world: World, streams: list[Stream]) -> None:
    """Wait until every stream was heard once, so that its lag is known before anything happens."""
    deadline_ns = world.clock.now_ns() + round(FIRST_LIMIT_S * NS)
    while any(stream.lag_ns is None for stream in streams) and world.clock.now_ns() < deadline_ns:
        await world.clock.sleep(0.02)


async def _beat(world: World, observers: Observers, stream: Stream, ref: Ref) -> None:
    number, sent_ns = 0, 0
    while True:
        now_ns = world.clock.now_ns()
        if stream.beat_ns is None and _is_due(stream, now_ns, sent_ns):
            number, sent_ns = number + 1, now_ns
            stream.beat_ns, stream.beat, stream.answered_ns = now_ns, (ref.name, str(number)), None
            if not await _sent(world, observers, stream, ref):
                stream.beat_ns = None
        await world.clock.sleep(_pause_s(stream, now_ns, observers.journal.released_ns))


def _is_due(stream: Stream, now_ns: int, sent_ns: int) -> bool:
    """Whether a beat tells anything: a steady lag is known after one."""
    is_quiet = now_ns - stream.heard_ns >= QUIET_S * NS
    return not stream.steady or is_quiet or now_ns - sent_ns >= MEASURE_S * NS


def _pause_s(stream: Stream, now_ns: int, released_ns: int) -> float:
    if stream.steady:
        idle_s = (now_ns - max(stream.news_ns, released_ns)) / NS
        return min(LONGEST_S, max(QUIET_S, idle_s / SLACK))
    since_s = (now_ns - released_ns) / NS if released_ns else 0.0
    return min(WIDEST_S, max(CLOSEST_S, since_s / GROWTH))


async def _sent(world: World, observers: Observers, stream: Stream, ref: Ref) -> bool:
    """Touch a heartbeat object; whether the API answered is known from it as well."""
    clock, journal = world.clock, observers.journal
    start_ns = clock.now_ns()
    try:
        await world.cluster.patch(ref, {"metadata": {"annotations": {BEAT: stream.beat[1]}}})
    except (Unavailable, Unknown):
        journal.silent(start_ns)
        return False
    except (Throttled, ClusterError):
        return False
    now_ns = clock.now_ns()
    journal.answered(now_ns, start_ns)
    if stream.beat_ns is not None:
        stream.answered_ns = now_ns
    if journal.released_ns:
        journal.round_trips_s.append((now_ns - start_ns) / NS)
    return True


async def _sample_loop(clock: Clock, observers: Observers) -> None:
    """How late this process's own event loop is: nothing on virtual time, where it is not asked again."""
    pause_s = 0.25
    while True:
        due_ns = clock.now_ns() + round(pause_s * NS)
        await clock.sleep(pause_s)
        late_ns = max(0, clock.now_ns() - due_ns)
        observers.late_ns = max(observers.late_ns, late_ns)
        if late_ns:
            observers.journal.largest("loop_lag_ms", clock.now_ns(), late_ns / 1e6)
        else:
            pause_s = min(LONGEST_S, pause_s * 2)


async def _removed(world: World, refs: list[Ref]) -> None:
    """Delete the heartbeat objects and see them go: the next thing that happens is a count of leftovers."""
    deadline_ns = world.clock.now_ns() + round(GONE_LIMIT_S * NS)
    for ref in refs:
        while world.clock.now_ns() < deadline_ns:
            try:
                await world.cluster.delete(ref)
                await world.clock.sleep(0.05)
                await world.cluster.get(ref)
            except (NotFound, Forbidden):
                break
            except ClusterError:
                await world.clock.sleep(QUIET_S)
