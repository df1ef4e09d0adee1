"""A state that is handed on within a process is what another process would read."""

import orjson

from infra.cluster.virtual import runtime
from tests.unit.virtual.conftest import OpenCluster


def test_the_state_handed_on_is_the_state_that_is_read(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()
    body = cluster.state()
    (handed_on,) = runtime._LATEST.values()
    assert orjson.loads(body) == handed_on
