"""The adapter's promises, kept against a real kube-apiserver."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.kinds import CONFIG_MAP, NAMESPACE, POD, VM, VMI
from infra.cluster.port import Cluster, Ref, Scope, WatchBatch, list_all, ref_of
from infra.cluster.real import KubernetesCluster, connect
from infra.errors import AlreadyExists, Conflict, Forbidden, Gone, Invalid, NotFound, Unavailable, Unreachable
from infra.testbed import state as testbed_state
from infra.testbed import virt_api
from infra.testbed.state import CONTEXT, State
from tests.real.manifests import config_map, instance, virtual_machine

# The first test pays for the start of the servers, on a busy machine half a minute.
pytestmark = [pytest.mark.api, pytest.mark.timeout(600)]
PATIENCE_S = 20.0


@asynccontextmanager
async def connected(testbed: State) -> AsyncIterator[KubernetesCluster]:
    cluster = await connect(CONTEXT, str(testbed.kubeconfig))
    try:
        yield cluster
    finally:
        await cluster.close()


def run(testbed: State, use: Callable[[KubernetesCluster], Awaitable[None]]) -> None:
    async def connect_and_use() -> None:
        async with connected(testbed) as cluster:
            port: Cluster = cluster
            assert port is cluster
            await use(cluster)

    asyncio.run(connect_and_use())


async def first(batches: AsyncIterator[WatchBatch]) -> WatchBatch:
    return await asyncio.wait_for(anext(batches), PATIENCE_S)


def test_an_object_is_created_read_and_deleted(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        vm = virtual_machine("vm", namespace)
        created = await cluster.create(vm)
        assert created["metadata"]["uid"]
        assert await cluster.get(ref_of(vm)) == created
        with pytest.raises(AlreadyExists, match="create VirtualMachine vm: 409"):
            await cluster.create(vm)
        await cluster.delete(ref_of(vm), uid=created["metadata"]["uid"])
        with pytest.raises(NotFound):
            await cluster.get(ref_of(vm))
        with pytest.raises(NotFound):
            await cluster.delete(ref_of(vm))

    run(testbed, use)


def test_a_dry_run_leaves_nothing(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        vm = virtual_machine("dry", namespace)
        await cluster.create(vm, dry_run=True)
        await cluster.apply(vm, "virtscale", dry_run=True)
        with pytest.raises(NotFound):
            await cluster.get(ref_of(vm))

    run(testbed, use)


def test_an_unknown_field_and_a_wrong_value_are_invalid(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(Invalid, match="unknown field"):
            await cluster.create(config_map("typo", namespace) | {"datum": {}})
        with pytest.raises(Invalid, match="422"):
            await cluster.create(config_map("Upper", namespace))

    run(testbed, use)


def test_apply_conflicts_with_another_manager_unless_forced(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        await cluster.apply(config_map("shared", namespace, key="mine"), "one")
        theirs = config_map("shared", namespace, key="theirs")
        with pytest.raises(Conflict, match='conflict with "one"'):
            await cluster.apply(theirs, "two")
        forced = await cluster.apply(theirs, "two", force=True)
        assert forced["data"] == {"key": "theirs"}

    run(testbed, use)


def test_a_merge_patch_reaches_status_where_the_kind_has_it(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        vm, vmi = virtual_machine("vm", namespace), instance("vmi", namespace, "Pending")
        stale = (await cluster.create(vm))["metadata"]["resourceVersion"]
        await cluster.create(vmi)
        merge = {"status": {"printableStatus": "Stopped"}}
        patched = await cluster.patch(ref_of(vm), merge, subresource="status")
        assert patched["status"]["printableStatus"] == "Stopped"
        running = await cluster.patch(ref_of(vmi), {"status": {"phase": "Running"}})
        assert running["status"]["phase"] == "Running"
        with pytest.raises(NotFound):
            await cluster.patch(ref_of(vmi), merge, subresource="status")
        with pytest.raises(Conflict):
            await cluster.patch(ref_of(vm), {"metadata": {"resourceVersion": stale, "labels": {"a": "b"}}})

    run(testbed, use)


def test_a_delete_with_another_uid_is_a_conflict(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        config = config_map("kept", namespace)
        await cluster.create(config)
        with pytest.raises(Conflict):
            await cluster.delete(ref_of(config), uid="00000000-0000-0000-0000-000000000000")
        await cluster.get(ref_of(config))

    run(testbed, use)


def test_pages_make_a_whole_list_whose_items_say_their_kind(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        names = [f"c{number}" for number in range(7)]
        await asyncio.gather(*(cluster.create(config_map(name, namespace)) for name in names))
        scope = Scope(CONFIG_MAP, namespace, labels="app=virtscale-test")
        page = await cluster.list(scope, limit=3)
        assert len(page.items) == 3
        assert page.continue_
        everything = await list_all(cluster, scope, page=3)
        assert sorted(ref_of(item).name for item in everything.items) == names
        one = await cluster.list(Scope(CONFIG_MAP, namespace, fields="metadata.name=c1"))
        assert [item["metadata"]["name"] for item in one.items] == ["c1"]

    run(testbed, use)


def test_a_watch_delivers_what_happened_after_its_version_with_its_receipt_time(
    testbed: State, namespace: str
) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        scope = Scope(VM, namespace, labels="app=virtscale-test")
        version = (await cluster.list(scope)).resource_version
        vm = virtual_machine("seen", namespace)
        before_ns = time.monotonic_ns()
        await cluster.create(vm)
        async with aclosing(cluster.watch(scope, version)) as batches:
            batch = await first(batches)
            assert before_ns < batch.received_ns <= time.monotonic_ns()
            assert [(event.type, ref_of(event.object)) for event in batch.events] == [("ADDED", ref_of(vm))]
            await cluster.delete(ref_of(vm))
            assert (await first(batches)).events[0].type == "DELETED"

    run(testbed, use)


def test_a_watch_that_the_server_ends_is_over_without_an_error(
    testbed: State, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.cluster.real.requests.WATCH_S", 1)

    async def use(cluster: KubernetesCluster) -> None:
        scope = Scope(CONFIG_MAP, namespace)
        version = (await cluster.list(scope)).resource_version
        async with aclosing(cluster.watch(scope, version)) as batches:
            events = [event async for batch in batches for event in batch.events]
        assert {event.type for event in events} <= {"ADDED", "BOOKMARK"}

    run(testbed, use)


def test_a_watch_of_a_forgotten_version_is_gone(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(Gone):
            async with aclosing(cluster.watch(Scope(VM, namespace), "1")) as batches:
                await first(batches)

    run(testbed, use)


def test_start_and_stop_go_through_the_aggregated_api(testbed: State, namespace: str) -> None:
    asked: list[tuple[str, Mapping[str, Any]]] = []

    async def start_stop(namespace: str, name: str, verb: str, options: Mapping[str, Any]) -> int:
        asked.append((verb, options))
        if verb == "stop":
            raise Conflict("VM is not running")
        return 202

    async def use(cluster: KubernetesCluster) -> None:
        ref = Ref(VM, namespace, "vm")
        async with virt_api.serving(testbed, start_stop):
            await cluster.subresource(ref, "start")
            with pytest.raises(Conflict, match="VM is not running"):
                await cluster.subresource(ref, "stop", {"gracePeriod": 0})
        with pytest.raises((NotFound, Unavailable)):
            await cluster.subresource(ref, "start")

    run(testbed, use)
    assert asked == [("start", {}), ("stop", {"gracePeriod": 0})]


def test_a_pod_is_bound_to_a_node(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        containers = [{"name": "c", "image": "none.example/none"}]
        metadata = {"name": "pod", "namespace": namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        ref = ref_of(await cluster.create(pod))
        assert ref.kind is POD
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
        await cluster.subresource(ref, "binding", {"target": target})
        assert (await cluster.get(ref))["spec"]["nodeName"] == "node-1"

    run(testbed, use)


def test_rights_are_asked_for_by_a_review(testbed: State, namespace: str) -> None:
    attributes = {
        "namespace": namespace,
        "verb": "create",
        "group": "kubevirt.io",
        "resource": "virtualmachines",
    }

    async def use(cluster: KubernetesCluster) -> None:
        review = await cluster.create(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "metadata": {},
                "spec": {"resourceAttributes": attributes},
            }
        )
        assert review["status"]["allowed"] is True

    run(testbed, use)


def test_many_at_once_share_the_bounded_connections(testbed: State, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        wanted = [config_map(f"many-{number}", namespace) for number in range(200)]
        await asyncio.gather(*map(cluster.create, wanted))
        assert len((await list_all(cluster, Scope(CONFIG_MAP, namespace, "app=virtscale-test"))).items) == 200

    run(testbed, use)


def test_who_may_not_is_forbidden(testbed: State, tmp_path: Path) -> None:
    testbed_state.write_kubeconfig(testbed, tmp_path / "weak", "controller-manager")

    async def use() -> None:
        cluster = await connect(CONTEXT, str(tmp_path / "weak"))
        try:
            with pytest.raises(Forbidden, match="cannot create"):
                await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "no"}})
        finally:
            await cluster.close()

    asyncio.run(use())


def test_an_unknown_context_is_one_line_that_names_the_known_ones(testbed: State, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"no context 'prod' in .*; it has: virtscale-testbed"):
        asyncio.run(connect("prod", str(testbed.kubeconfig)))
    with pytest.raises(Unreachable, match="absent"):
        asyncio.run(connect("prod", str(tmp_path / "absent")))


def test_an_api_server_that_does_not_answer_is_unreachable(testbed: State, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        dead = testbed_state.State(testbed.folder, port, port, port, port)
        testbed_state.write_kubeconfig(dead, tmp_path / "dead", "admin")
        with pytest.raises(
            Unreachable, match=f"context virtscale-testbed: https://127.0.0.1:{port} cannot be used"
        ):
            asyncio.run(connect(CONTEXT, str(tmp_path / "dead")))


def test_closing_twice_is_fine_and_the_version_is_known(testbed: State) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        assert cluster.version.startswith("v1.")
        assert cluster.server == testbed.server
        await cluster.get(Ref(NAMESPACE, "", "default"))
        assert (await cluster.list(Scope(VMI))).continue_ == ""
        await cluster.close()

    run(testbed, use)
