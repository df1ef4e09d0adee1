"""A store write and its fan-out to six watchers, against the naive way: a deep copy and a queue per watcher.

Both write into a `Store`, a status patch of a VirtualMachine each virtual millisecond, on a virtual loop, and
a task reads each watcher. Ours delivers what came within the watch lag (5 ms) as one shared batch; two of the
six select by label.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from copy import deepcopy
from functools import partial
from typing import Any

from infra.cluster.kinds import NAMESPACE, VM, Kind
from infra.cluster.port import Object, Ref, WatchBatch, WatchEvent
from infra.cluster.virtual.hub import Hub
from infra.cluster.virtual.loop import VirtualLoop, new_loop
from infra.cluster.virtual.selectors import predicate
from infra.cluster.virtual.store import Store
from infra.manifests import Disk, Machine, Mark, Source, virtual_machine
from tests.benchmarks.bench_figures import Figure, cpu_s, in_turns

VMS = 200
WRITES = 2_000
WATCHERS = 6
SELECTING = 2
LAG_S = 0.005
GAP_NS = 1_000_000
ROUNDS = 3
NAMESPACE_NAME = "bench"
STAMP = "2026-01-01T00:00:00Z"
MARK = Mark("bench", "nonce", "deploy", 200)
Queue = asyncio.Queue[WatchEvent | None]


def store_figures() -> list[Figure]:
    """Microseconds of CPU per write, delivery to six watchers included."""
    mine, theirs = in_turns(partial(_timed, _shared), partial(_timed, _copied), ROUNDS)
    per_us = 1e6 / WRITES
    n = f"n {ROUNDS} x {WRITES:,} writes, {WATCHERS} watchers, minimum of CPU"
    what = "store: write and fan-out"
    return [Figure(what, min(mine) * per_us, "us", min(theirs) * per_us, "deepcopy per watcher", n, 1.0)]


def _timed(contender: Callable[[VirtualLoop], Coroutine[Any, Any, int]]) -> float:
    loop, seen = new_loop(), [0]

    def work() -> None:
        seen[0] = loop.run_until_complete(contender(loop))

    try:
        took_s = cpu_s(work)
    finally:
        loop.close()
    if seen[0] != WRITES * WATCHERS:
        raise AssertionError(f"{seen[0]} of {WRITES * WATCHERS} events were delivered")
    return took_s


async def _shared(loop: VirtualLoop) -> int:
    hub = Hub(VM, loop, LAG_S, history=1000)
    store = Store(lambda kind, what, obj, before: _to_hub(hub, store, kind, (what, obj, before)))
    refs = _fill(store)
    await loop.wake_at(loop.now_ns + round(LAG_S * 1e9))
    matches = predicate("virtscale.io/run=bench", "")
    selectors = [matches] * SELECTING + [None] * (WATCHERS - SELECTING)
    streams = [hub.open("", each, store.resource_version) for each in selectors]
    readers = [loop.create_task(_read(stream)) for stream in streams]
    await _write_all(loop, store, refs)
    await loop.wake_at(loop.now_ns + 2 * round(LAG_S * 1e9))
    hub.end_all()
    return sum(await asyncio.gather(*readers))


def _to_hub(hub: Hub, store: Store, kind: Kind, change: tuple[str, Object, Object | None]) -> None:
    if kind is VM:
        what, obj, before = change
        hub.publish((store.resource_version, WatchEvent(what, obj), before))


async def _read(stream: AsyncIterator[WatchBatch]) -> int:
    seen = 0
    async for batch in stream:
        for event in batch.events:
            seen += event.type == "MODIFIED"
    return seen


async def _copied(loop: VirtualLoop) -> int:
    queues: list[Queue] = []

    def publish(kind: Kind, what: str, obj: Object, before: Object | None) -> None:
        for queue in queues:
            queue.put_nowait(WatchEvent(what, deepcopy(obj)))

    store = Store(publish)
    refs = _fill(store)
    queues += [asyncio.Queue() for _ in range(WATCHERS)]
    readers = [loop.create_task(_drain(queue)) for queue in queues]
    await _write_all(loop, store, refs)
    for queue in queues:
        queue.put_nowait(None)
    return sum(await asyncio.gather(*readers))


async def _drain(queue: Queue) -> int:
    seen = 0
    while (event := await queue.get()) is not None:
        seen += event.type == "MODIFIED"
    return seen


def _fill(store: Store) -> list[Ref]:
    namespace = {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": NAMESPACE_NAME}}
    store.create(namespace, STAMP)
    machine = Machine(1, 1, Disk(10, "ceph-rbd", "ReadWriteMany", "Block"))
    names = [f"vm-{i:04}" for i in range(VMS)]
    for name in names:
        store.create(virtual_machine(name, NAMESPACE_NAME, MARK, machine, Source("golden", "image")), STAMP)
    return [Ref(VM, NAMESPACE_NAME, name) for name in names]


async def _write_all(loop: VirtualLoop, store: Store, refs: list[Ref]) -> None:
    for i in range(WRITES):
        store.patch(refs[i % VMS], {"status": {"printableStatus": f"Step {i}"}}, "status")
        await loop.wake_at(loop.now_ns + GAP_NS)
