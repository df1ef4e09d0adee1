"""Work queue and informer: what every controller relies on."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

from infra.cluster.kinds import CONFIG_MAP, NAMESPACE
from infra.cluster.port import Object, Scope
from infra.cluster.virtual.api import ApiServer
from infra.cluster.virtual.description import Api, Description
from infra.cluster.virtual.informer import Informer
from infra.cluster.virtual.loop import VirtualClock, VirtualLoop
from infra.cluster.virtual.work_queue import WorkQueue, serve
from infra.errors import Conflict, Gone
from tests.unit.virtual.conftest import RunVirtual, manifest, ref


def test_a_key_is_never_with_two_workers_and_no_change_is_lost(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> None:
        queue: WorkQueue[str] = WorkQueue(VirtualClock(loop))
        inside: Counter[str] = Counter()
        wanted: Counter[str] = Counter()
        seen: Counter[str] = Counter()

        async def reconcile(key: str) -> None:
            inside[key] += 1
            assert inside[key] == 1
            now = wanted[key]
            await asyncio.sleep(0.7)
            seen[key] = now
            inside[key] -= 1

        workers = [loop.create_task(serve(queue, reconcile)) for _ in range(5)]
        for number in range(200):
            key = f"k{number % 7}"
            wanted[key] += 1
            queue.add(key)
            await asyncio.sleep(0.05)
        await asyncio.sleep(60)
        assert seen == wanted
        assert len(queue) == 0
        for worker in workers:
            worker.cancel()

    run_virtual(body)


def test_a_waiting_key_is_queued_once_and_keys_come_in_order(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> list[str]:
        queue: WorkQueue[str] = WorkQueue(VirtualClock(loop))
        for key in "abcabc":
            queue.add(key)
        return [await queue.get() for _ in range(len(queue))]

    assert run_virtual(body) == ["a", "b", "c"]


def test_a_key_added_in_work_comes_again_after_done(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> None:
        queue: WorkQueue[str] = WorkQueue(VirtualClock(loop))
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0
        queue.done("a")
        assert len(queue) == 1
        assert await queue.get() == "a"
        queue.done("a")
        assert len(queue) == 0

    run_virtual(body)


def test_what_the_api_refused_is_tried_again_ever_later(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> list[float]:
        queue: WorkQueue[str] = WorkQueue(VirtualClock(loop))
        attempts: list[float] = []

        async def refused(_: str) -> None:
            attempts.append(loop.time())
            if len(attempts) < 5:
                raise Conflict("the object has been modified")

        worker = loop.create_task(serve(queue, refused))
        queue.add("a")
        await asyncio.sleep(10)
        worker.cancel()
        return [round(later - earlier, 6) for earlier, later in pairwise(attempts)]

    assert run_virtual(body) == [0.005, 0.01, 0.02, 0.04]


def test_a_cancelled_worker_loses_no_key(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> list[str]:
        queue: WorkQueue[str] = WorkQueue(VirtualClock(loop))
        done: list[str] = []

        async def reconcile(key: str) -> None:
            done.append(key)

        first = loop.create_task(serve(queue, reconcile))
        second = loop.create_task(serve(queue, reconcile))
        await asyncio.sleep(1)
        first.cancel()
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1)
        second.cancel()
        return done

    assert run_virtual(body) == ["a", "b"]


def test_an_informer_survives_lost_history_and_tells_what_went(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> tuple[list[tuple[str, str]], list[str]]:
        server = ApiServer(loop, Description(api=Api()), seed=1)
        server.store.create(manifest(NAMESPACE, "ns"), "")
        told: list[tuple[str, str]] = []

        def tell(what: str, obj: Object, _: Object | None) -> None:
            told.append((what, obj["metadata"]["name"]))

        informer = Informer(server.client(), server.clock, Scope(CONFIG_MAP))
        informer.on_change(tell)
        running = loop.create_task(informer.run())
        server.store.create(manifest(CONFIG_MAP, "goes", data={}), "")
        server.store.create(manifest(CONFIG_MAP, "stays", data={}), "")
        await informer.synced.wait()
        await asyncio.sleep(1)
        server.store.delete(ref(CONFIG_MAP, "goes"), "")
        server.store.create(manifest(CONFIG_MAP, "new", data={}), "")
        server.hub(CONFIG_MAP).end_all(Gone("too old resource version"), forget_history=True)
        await asyncio.sleep(5)
        running.cancel()
        return told, sorted(name for _, name in informer.cache)

    told, cached = run_virtual(body)
    assert cached == ["new", "stays"]
    assert ("DELETED", "goes") in told
    assert told[-1] == ("ADDED", "new")
