"""Watches of the served API: order, bookmarks, ends, history, and readers that do not read."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.cluster.kinds import CONFIG_MAP, VM
from infra.cluster.port import Ref, Scope, WatchBatch, WatchEvent, ref_of
from infra.cluster.real import KubernetesCluster
from infra.cluster.virtual.faults import Fault
from infra.errors import Gone
from tests.real.manifests import config_map
from tests.served.conftest import PATIENCE_S, Server

Own = Callable[..., Any]
CHANGES = 30
"""Of an object of 500 KB: more than the buffers between the two ends of a connection hold."""


async def events(batches: AsyncIterator[WatchBatch], count: int) -> list[WatchEvent]:
    """The next events that are no bookmarks."""
    found: list[WatchEvent] = []
    while len(found) < count:
        batch = await asyncio.wait_for(anext(batches), PATIENCE_S)
        found += [event for event in batch.events if event.type != "BOOKMARK"]
    return found


def test_a_watch_tells_what_changes_in_order(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        scope = Scope(CONFIG_MAP, namespace)
        start = (await cluster.list(scope)).resource_version
        config = config_map("a", namespace)
        async with aclosing(cluster.watch(scope, start)) as batches:
            await cluster.create(config)
            await cluster.patch(ref_of(config), {"data": {"k": "v"}})
            await cluster.delete(ref_of(config))
            seen = await events(batches, 3)
        assert [event.type for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
        versions = [int(event.object["metadata"]["resourceVersion"]) for event in seen]
        assert versions == sorted(set(versions))
        # and again, from the middle
        async with aclosing(cluster.watch(scope, str(versions[0]))) as batches:
            assert [event.type for event in await events(batches, 2)] == ["MODIFIED", "DELETED"]

    server.use(use)


def test_a_label_that_comes_or_goes_is_added_or_deleted(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        config = config_map("a", namespace)
        created = await cluster.create(config)
        scope = Scope(CONFIG_MAP, namespace, labels="chosen=yes")
        async with aclosing(cluster.watch(scope, created["metadata"]["resourceVersion"])) as batches:
            await cluster.patch(ref_of(config), {"metadata": {"labels": {"chosen": "yes"}}})
            await cluster.patch(ref_of(config), {"metadata": {"labels": {"chosen": None}}})
            assert [event.type for event in await events(batches, 2)] == ["ADDED", "DELETED"]

    server.use(use)


def test_bookmarks_move_on_while_nothing_happens(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        scope = Scope(VM, namespace)
        start = (await cluster.list(scope)).resource_version
        await cluster.create(config_map("elsewhere", namespace))
        async with aclosing(cluster.watch(scope, start)) as batches:
            bookmark = (await asyncio.wait_for(anext(batches), PATIENCE_S)).events[0]
        assert bookmark.type == "BOOKMARK"
        assert bookmark.object["kind"] == "VirtualMachine"
        assert int(bookmark.object["metadata"]["resourceVersion"]) > int(start)

    server.use(use)


def test_a_version_that_is_no_longer_in_history_is_gone(own: Own) -> None:
    with own(history=10) as short:

        async def use(cluster: KubernetesCluster) -> None:
            first = await cluster.create(config_map("first", "default"))
            for number in range(20):
                await cluster.patch(ref_of(first), {"data": {"n": str(number)}})
            batches = cluster.watch(Scope(CONFIG_MAP), first["metadata"]["resourceVersion"])
            with pytest.raises(Gone, match="410 too old resource version"):
                await events(batches, 1)

        short.use(use)


def test_a_version_of_an_earlier_process_is_gone(own: Own) -> None:
    versions: list[str] = []

    async def remember(cluster: KubernetesCluster) -> None:
        versions.append((await cluster.list(Scope(CONFIG_MAP))).resource_version)

    async def resume(cluster: KubernetesCluster) -> None:
        with pytest.raises(Gone):
            await events(cluster.watch(Scope(CONFIG_MAP), versions[0]), 1)

    with own() as before:
        before.use(remember)
    with own() as after:
        after.use(resume)


def test_a_compacted_history_ends_open_watches(own: Own) -> None:
    with own(faults=(Fault(kind="watch-gone", at_s=3.0, for_s=0.1),)) as faulty:

        async def use(cluster: KubernetesCluster) -> None:
            start = (await cluster.list(Scope(VM))).resource_version
            with pytest.raises(Gone, match="compacted"):
                await events(cluster.watch(Scope(VM), start), 1)

        faulty.use(use)


def test_a_server_that_stops_ends_watches_cleanly_and_leaves_no_task(own: Own) -> None:
    with own() as ending:

        async def use(cluster: KubernetesCluster) -> None:
            start = (await cluster.list(Scope(VM))).resource_version
            async with aclosing(cluster.watch(Scope(VM), start)) as batches:
                watching = asyncio.ensure_future(anext(batches, None))
                await asyncio.sleep(1.5)
                ending.stop()
                assert await watching is None

        ending.use(use)
    assert ending.left == []


async def raw(server: Server, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A GET whose answer is left to the caller."""
    document = json.loads(server.kubeconfig.read_text())
    token = document["users"][0]["user"]["token"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = urlsplit(server.address).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=2**16)
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()
    return reader, writer


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection whatever state it is in."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


def test_a_watch_ends_cleanly_when_its_time_is_over(server: Server) -> None:
    async def use(_: KubernetesCluster) -> None:
        began = time.monotonic()
        reader, writer = await raw(server, "/api/v1/nodes?watch=true&timeoutSeconds=1")
        text = (await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), PATIENCE_S)).decode()
        assert 0.9 < time.monotonic() - began < 5
        assert text.startswith("HTTP/1.1 200 OK")
        # without a version the watch begins with what there is
        assert text.count('"type":"ADDED"') == 4
        await hang_up(writer)

    server.use(use)


def test_a_reader_that_does_not_read_is_ended(server: Server, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps?watch=true&resourceVersion="

    async def use(cluster: KubernetesCluster) -> None:
        big = config_map("big", namespace, text="x" * 500_000)
        start = (await cluster.create(config_map("first", namespace)))["metadata"]["resourceVersion"]
        reader, writer = await raw(server, path + start)
        quick = cluster.watch(Scope(CONFIG_MAP, namespace), start)
        reading = asyncio.ensure_future(events(quick, CHANGES))
        await cluster.create(big)
        for number in range(CHANGES - 1):
            await cluster.patch(Ref(CONFIG_MAP, namespace, "big"), {"data": {"n": str(number)}})
        seen = await reading
        await quick.aclose()
        assert len(seen) == CHANGES
        await asyncio.sleep(0.6)
        rest = b""
        with suppress(ConnectionResetError):
            while chunk := await asyncio.wait_for(reader.read(2**20), PATIENCE_S):
                rest += chunk
        assert rest.count(b'"type":') < CHANGES
        await hang_up(writer)

    server.use(use)
