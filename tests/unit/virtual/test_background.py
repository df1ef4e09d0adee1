"""Other pods of a cluster are there before the run and take room on its nodes."""

from infra.cluster.kinds import POD
from infra.cluster.port import Scope
from infra.cluster.virtual.description import load_description
from infra.cluster.virtual.faults import FaultPlan
from infra.cluster.virtual.runtime import VirtualCluster


def test_background_pods_run_on_every_node_in_turn() -> None:
    cluster = VirtualCluster(load_description("fast"), 1, FaultPlan())
    cluster.open(None, background_pods=7)
    pods = cluster.run(cluster.client.list(Scope(POD))).items
    cluster.close()
    nodes = sorted(pod["spec"]["nodeName"] for pod in pods)
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    assert [nodes.count(node) for node in sorted(set(nodes))] == [3, 2, 2]
