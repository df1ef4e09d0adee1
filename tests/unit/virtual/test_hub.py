"""Watches and lists through the port: edges of selectors, lost history, pages that never mix."""

import asyncio
from typing import Any

import pytest

from infra.cluster.kinds import CONFIG_MAP, DATA_VOLUME, NAMESPACE, SECRET, Kind
from infra.cluster.port import Ref, Scope, WatchBatch, list_all
from infra.cluster.virtual.api import ApiServer, VirtualClient
from infra.cluster.virtual.description import Api, Description
from infra.cluster.virtual.loop import VirtualLoop
from infra.errors import Gone, Unavailable
from tests.unit.virtual.conftest import RunVirtual, manifest, ref

Seen = list[tuple[str, str]]


def server(loop: VirtualLoop, history: int = 1000) -> ApiServer:
    found = ApiServer(loop, Description(api=Api(history=history, watch_lag_s=0.02)), seed=1)
    for name in ("ns", "other"):
        found.store.create(manifest(NAMESPACE, name), "")
    return found


async def read(stream: Any, into: Seen) -> None:
    async for batch in stream:
        into += [(event.type, event.object["metadata"]["name"]) for event in batch.events]


async def make(client: VirtualClient, name: str, namespace: str = "ns", **labels: str) -> None:
    await client.create(manifest(CONFIG_MAP, name, namespace, meta={"labels": labels}, data={}))


def test_a_watch_sees_what_enters_and_leaves_its_selector(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> Seen:
        client = server(loop).client()
        seen: Seen = []
        watching = loop.create_task(read(client.watch(Scope(CONFIG_MAP, labels="app=web"), ""), seen))
        await make(client, "a", app="web")
        await make(client, "b", app="db")
        for label in ("web", "web", "db", "other"):
            await client.patch(
                ref(CONFIG_MAP, "b"), {"metadata": {"labels": {"app": label}}, "data": {"x": label}}
            )
        await client.patch(ref(CONFIG_MAP, "a"), {"data": {"y": "1"}})
        await client.delete(ref(CONFIG_MAP, "a"))
        await client.delete(ref(CONFIG_MAP, "b"))
        await asyncio.sleep(1)
        watching.cancel()
        return seen

    expected = [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert run_virtual(body) == expected


def test_a_watch_of_a_namespace_hears_of_no_other(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> Seen:
        client = server(loop).client()
        seen: Seen = []
        watching = loop.create_task(read(client.watch(Scope(CONFIG_MAP, "ns"), ""), seen))
        await make(client, "a", "ns")
        await make(client, "b", "other")
        await asyncio.sleep(1)
        watching.cancel()
        return seen

    assert run_virtual(body) == [("ADDED", "a")]


def test_events_arrive_a_lag_later_with_their_receipt_time(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> tuple[int, int]:
        found = server(loop)
        stream = found.client().watch(Scope(CONFIG_MAP), "")
        await asyncio.sleep(3)
        found.store.create(manifest(CONFIG_MAP), "")
        changed_ns = loop.now_ns
        batch: WatchBatch = await anext(stream)
        return changed_ns, batch.received_ns

    changed_ns, received_ns = run_virtual(body)
    assert received_ns - changed_ns == 20_000_000


def test_a_watch_resumes_after_the_version_it_names(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> Seen:
        client = server(loop).client()
        await make(client, "before")
        version = (await client.list(Scope(CONFIG_MAP))).resource_version
        await make(client, "after")
        await asyncio.sleep(1)
        seen: Seen = []
        watching = loop.create_task(read(client.watch(Scope(CONFIG_MAP), version), seen))
        await make(client, "later")
        await asyncio.sleep(1)
        watching.cancel()
        return seen

    assert run_virtual(body) == [("ADDED", "after"), ("ADDED", "later")]


def test_a_watch_opened_while_changes_are_on_their_way_sees_each_once(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> Seen:
        found = server(loop)
        client = found.client()
        other: Seen = []
        watching = [loop.create_task(read(client.watch(Scope(CONFIG_MAP), ""), other))]
        await asyncio.sleep(1)
        version = str(found.store.resource_version)
        found.store.create(manifest(CONFIG_MAP, "on-its-way"), "")
        seen: Seen = []
        watching.append(loop.create_task(read(client.watch(Scope(CONFIG_MAP), version), seen)))
        await asyncio.sleep(1)
        for task in watching:
            task.cancel()
        return seen

    assert run_virtual(body) == [("ADDED", "on-its-way")]


def test_a_watch_never_goes_back_behind_the_version_it_names(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> Seen:
        found = server(loop)
        client = found.client()
        watching = [loop.create_task(read(client.watch(Scope(CONFIG_MAP), ""), []))]
        await asyncio.sleep(1)
        for name in ("known", "new"):
            found.store.create(manifest(CONFIG_MAP, name), "")
        seen: Seen = []
        version = str(found.store.resource_version - 1)
        watching.append(loop.create_task(read(client.watch(Scope(CONFIG_MAP), version), seen)))
        await asyncio.sleep(1)
        for task in watching:
            task.cancel()
        return seen

    assert run_virtual(body) == [("ADDED", "new")]


def test_a_version_beyond_history_is_gone(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> Seen:
        client = server(loop, history=10).client()
        await make(client, "first")
        old = (await client.list(Scope(CONFIG_MAP))).resource_version
        for number in range(11):
            await make(client, f"c{number}")
        with pytest.raises(Gone, match="too old resource version"):
            client.watch(Scope(CONFIG_MAP), old)
        kept = (await client.list(Scope(CONFIG_MAP))).resource_version
        seen: Seen = []
        watching = loop.create_task(read(client.watch(Scope(CONFIG_MAP), kept), seen))
        await make(client, "last")
        await asyncio.sleep(1)
        watching.cancel()
        return seen

    assert run_virtual(body) == [("ADDED", "last")]


def test_a_watch_ends_cleanly_after_what_it_holds_or_with_its_error(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> Seen:
        found = server(loop)
        client = found.client()
        seen: Seen = []
        clean = loop.create_task(read(client.watch(Scope(CONFIG_MAP), ""), seen))
        await make(client, "a")
        await asyncio.sleep(1)
        assert found.hub(CONFIG_MAP).end_all() == 1
        await clean
        broken = loop.create_task(read(client.watch(Scope(CONFIG_MAP), ""), []))
        await asyncio.sleep(1)
        found.hub(CONFIG_MAP).end_all(Unavailable("connection lost"))
        with pytest.raises(Unavailable):
            await broken
        return seen

    assert run_virtual(body) == [("ADDED", "a")]


def test_pages_of_concurrent_lists_never_mix(run_virtual: RunVirtual[Any]) -> None:
    kinds = (CONFIG_MAP, SECRET, DATA_VOLUME)

    async def body(loop: VirtualLoop) -> dict[str, list[str]]:
        found = server(loop)
        for number in range(23):
            for kind in kinds:
                found.store.create(manifest(kind, f"{kind.plural}-{number:02}", data={}), "")
        client = found.client()

        async def names(kind: Kind) -> list[str]:
            listed = await list_all(client, Scope(kind, "ns"), page=5)
            return [obj["metadata"]["name"] for obj in listed.items]

        answers = await asyncio.gather(*(names(kind) for kind in (*kinds, *kinds)))
        assert answers[:3] == answers[3:]
        return dict(zip((kind.plural for kind in kinds), answers, strict=False))

    listed = run_virtual(body)
    assert listed == {kind.plural: [f"{kind.plural}-{n:02}" for n in range(23)] for kind in kinds}


def test_a_paged_list_shows_one_moment(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> None:
        client = server(loop).client()
        for number in range(4):
            await make(client, f"c{number}")
        first = await client.list(Scope(CONFIG_MAP), limit=2)
        await client.delete(ref(CONFIG_MAP, "c3"))
        await make(client, "c4")
        rest = await client.list(Scope(CONFIG_MAP), limit=2, continue_=first.continue_)
        assert [obj["metadata"]["name"] for obj in rest.items] == ["c2", "c3"]
        assert (rest.continue_, rest.resource_version) == ("", first.resource_version)
        with pytest.raises(Unavailable, match="continue token"):
            await client.list(Scope(CONFIG_MAP), continue_=first.continue_)

    run_virtual(body)


def test_a_list_is_narrowed_by_namespace_and_selectors(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> list[list[str]]:
        client = server(loop).client()
        await make(client, "a", "ns", app="web")
        await make(client, "b", "ns", app="db")
        await make(client, "c", "other", app="web")
        scopes = [
            Scope(CONFIG_MAP),
            Scope(CONFIG_MAP, "ns"),
            Scope(CONFIG_MAP, labels="app=web"),
            Scope(CONFIG_MAP, "ns", fields="metadata.name=b"),
        ]
        return [[o["metadata"]["name"] for o in (await client.list(scope)).items] for scope in scopes]

    assert run_virtual(body) == [["a", "b", "c"], ["a", "b"], ["a", "c"], ["b"]]


def test_a_namespace_takes_what_it_holds_along(run_virtual: RunVirtual[Any]) -> None:
    async def body(loop: VirtualLoop) -> None:
        found = server(loop)
        client = found.client()
        await make(client, "a", "ns")
        await make(client, "b", "other")
        await client.create(manifest(SECRET, "held", "ns", meta={"finalizers": ["a/b"]}))
        await client.delete(Ref(NAMESPACE, "", "ns"))
        await asyncio.sleep(10)
        assert [o["metadata"]["name"] for o in (await client.list(Scope(CONFIG_MAP))).items] == ["b"]
        assert (await client.get(Ref(NAMESPACE, "", "ns")))["metadata"]["deletionTimestamp"]
        await client.patch(ref(SECRET, "held"), {"metadata": {"finalizers": None}})
        await asyncio.sleep(10)
        assert [o["metadata"]["name"] for o in (await client.list(Scope(NAMESPACE))).items] == ["other"]

    run_virtual(body)


def test_a_removed_owner_takes_dependents_along_unless_another_lives(
    run_virtual: RunVirtual[Any],
) -> None:
    def owned_by(*owners: dict[str, Any]) -> dict[str, Any]:
        references = [{"kind": "ConfigMap", "name": "x", "uid": owner["metadata"]["uid"]} for owner in owners]
        return {"ownerReferences": references}

    async def body(loop: VirtualLoop) -> list[str]:
        client = server(loop).client()
        one = await client.create(manifest(CONFIG_MAP, "one"))
        two = await client.create(manifest(CONFIG_MAP, "two"))
        child = await client.create(manifest(CONFIG_MAP, "child", meta=owned_by(one)))
        await client.create(manifest(CONFIG_MAP, "grandchild", meta=owned_by(child)))
        await client.create(manifest(CONFIG_MAP, "of-both", meta=owned_by(one, two)))
        await client.delete(ref(CONFIG_MAP, "one"))
        await asyncio.sleep(5)
        return [obj["metadata"]["name"] for obj in (await client.list(Scope(CONFIG_MAP))).items]

    assert run_virtual(body) == ["two", "of-both"]
