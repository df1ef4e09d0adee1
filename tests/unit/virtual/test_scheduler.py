"""kube-scheduler: its scores, and the image-locality trap of the reference study."""

import asyncio
import statistics
from collections import Counter
from typing import Any

import pytest

from infra.cluster.kinds import NAMESPACE, POD
from infra.cluster.port import Object, Ref, Scope
from infra.cluster.virtual.controllers.scheduler import NodeState, allocation_score, image_score, quantity
from infra.cluster.virtual.description import Description, Nodes, load_description
from tests.unit.virtual.conftest import OpenCluster, manifest


def node(**changes: Any) -> NodeState:
    return NodeState("n", 100_000.0, 500_000.0, 250, 1000, has_image=True, **changes)


@pytest.mark.parametrize(
    ("used_cpu", "used_memory", "score"),
    [(0, 0, 200), (100_000, 500_000, 100), (50_000, 250_000, 150), (100_000, 0, 100), (10_000, 0, 190)],
)
def test_least_and_balanced_allocation(used_cpu: float, used_memory: float, score: int) -> None:
    assert allocation_score(node(used_cpu=used_cpu, used_memory=used_memory)) == score


@pytest.mark.parametrize(
    ("size_mb", "share", "score"),
    [(10, 1.0, 0), (23, 1.0, 0), (1000, 1.0, 100), (5000, 1.0, 100), (511.5, 1.0, 50), (590, 0.5, 27)],
)
def test_image_locality_grows_with_size_and_with_the_nodes_that_have_it(
    size_mb: float, share: float, score: int
) -> None:
    assert image_score(size_mb, share) == score


@pytest.mark.parametrize(
    ("text", "number"),
    [("100m", 100), ("2Gi", 2048), ("512Mi", 512), ("1024Ki", 1), ("250", 250), ("1k", 1000)],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == number


def test_a_node_is_full_by_whatever_runs_out_first() -> None:
    assert node().fits(100_000, 500_000)
    assert not node(used_cpu=1.0).fits(100_000, 1)
    assert not node(used_memory=1.0).fits(1, 500_000)
    assert not node(used_pods=250).fits(1, 1)


def pod(name: str, cpu: str = "100m", memory: str = "1Gi") -> Object:
    requests = {"cpu": cpu, "memory": memory}
    return manifest(POD, name, spec={"containers": [{"name": "c", "resources": {"requests": requests}}]})


def placed(open_cluster: OpenCluster, nodes: Nodes, pods: int) -> Counter[str]:
    description: Description = load_description("fast").model_copy(update={"nodes": nodes})
    cluster = open_cluster(description)

    async def body() -> Counter[str]:
        api = cluster.client
        await api.create(manifest(NAMESPACE, "ns"))
        for number in range(pods):
            await api.create(pod(f"p{number:04}"))
        await asyncio.sleep(60)
        listed = await api.list(Scope(POD))
        return Counter(each["spec"].get("nodeName", "") for each in listed.items)

    return cluster.run(body())


def spread(found: Counter[str]) -> float:
    """Coefficient of variation of the pods per node, of all 20."""
    counts = [found.get(f"worker-{number:03}", 0) for number in range(20)]
    assert sum(counts) == 200
    return statistics.pstdev(counts) / statistics.mean(counts)


def test_pods_spread_evenly_when_every_node_reports_the_image(open_cluster: OpenCluster) -> None:
    found = placed(open_cluster, Nodes(workers=20, background_spread=0.0), 200)
    assert spread(found) <= 0.2


def test_pods_pile_up_where_the_image_is_reported(open_cluster: OpenCluster) -> None:
    found = placed(open_cluster, Nodes(workers=20, background_spread=0.0, status_max_images=50), 200)
    assert spread(found) >= 0.4


def test_a_pod_without_room_says_so_and_is_placed_when_there_is(open_cluster: OpenCluster) -> None:
    description = load_description("fast").model_copy(
        update={"nodes": Nodes(workers=1, cpu=4, background_cpu=0.0)}
    )
    cluster = open_cluster(description)

    async def body() -> None:
        api = cluster.client
        await api.create(manifest(NAMESPACE, "ns"))
        await api.create(pod("first", cpu="3000m"))
        await asyncio.sleep(1)
        await api.create(pod("second", cpu="3000m"))
        await asyncio.sleep(1)
        waits = await api.get(Ref(POD, "ns", "second"))
        assert waits["status"]["conditions"][0]["reason"] == "Unschedulable"
        assert "nodeName" not in waits["spec"]
        await api.delete(Ref(POD, "ns", "first"))
        await asyncio.sleep(10)
        assert (await api.get(Ref(POD, "ns", "second")))["spec"]["nodeName"] == "worker-000"

    cluster.run(body())
