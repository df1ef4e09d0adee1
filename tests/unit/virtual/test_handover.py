"""A state that is handed on within a process is what another process would read."""

from weakref import ref

import pytest

from infra.cluster.virtual import runtime
from infra.cluster.virtual.description import load_description
from infra.cluster.virtual.faults import FaultPlan
from infra.cluster.virtual.runtime import VirtualCluster
from infra.cluster.virtual.saved_state import packed, unpacked
from tests.unit.virtual.conftest import OpenCluster


def test_the_state_handed_on_is_the_state_that_is_read(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()
    body = cluster.state()
    (handed_on,) = runtime._LATEST.values()
    assert unpacked(body) == handed_on


@pytest.mark.parametrize("objects", [0, 1, 500, 501, 1001])
def test_a_state_is_packed_in_pieces_and_unpacked_whole(objects: int) -> None:
    state = {"now_ns": 1, "running": [], "store": {"uids": 2, "objects": [{"n": n} for n in range(objects)]}}
    assert unpacked(packed(state)) == state


def test_a_closed_cluster_is_freed_when_the_next_one_is_made() -> None:
    first = VirtualCluster(load_description("fast"), 1, FaultPlan())
    first.open(None)
    first.close()
    inside = ref(first.plane.machines)
    del first
    VirtualCluster(load_description("fast"), 1, FaultPlan()).close()
    assert inside() is None
