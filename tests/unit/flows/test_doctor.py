"""`virtscale doctor` tells in one screen what a cluster has, and what is missing for which stage."""

import asyncio
import json
from typing import Any

from infra.cluster.kinds import CUSTOM_RESOURCE, VM
from infra.cluster.port import ObjectList, Ref, Scope
from infra.errors import NotFound
from infra.world import World
from tasks.inventory import Item, lacking, served
from tests.unit.flows.conftest import Call
from tests.unit.stages.fakes import StepClock


class OldCluster:
    """KubeVirt of long ago: its VirtualMachines are v1alpha3."""

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        raise NotFound("the server could not find the requested resource")

    async def get(self, ref: Ref) -> dict[str, Any]:
        assert ref == Ref(CUSTOM_RESOURCE, "", "virtualmachines.kubevirt.io")
        return {"spec": {"versions": [{"name": "v1alpha2"}, {"name": "v1alpha3", "served": True}]}}


def test_everything_is_found_on_the_virtual_cluster_in_one_screen(virtscale: Call) -> None:
    answer = virtscale("doctor")
    lines = answer.out.splitlines()
    assert answer.code == 0
    assert len(lines) < 24
    assert max(map(len, lines)) < 170
    assert lines[-1].split()[:2] == ["stages", "ok"]
    (nodes,) = (line for line in lines if line.startswith("nodes "))
    assert "130 Ready, 129 schedulable" in nodes
    (rates,) = (line for line in lines if line.startswith("client rates"))
    assert "controller " in rates


def test_programs_get_the_same_as_json(virtscale: Call) -> None:
    found = json.loads(virtscale("doctor", "--json").out)
    assert {each["name"]: each["ok"] for each in found["checks"]} == {
        "versions": True, "prefect": True, "store": True, "cluster": True,
    }  # fmt: skip
    assert {item["name"] for item in found["cluster"]} >= {"KubeVirt", "CDI", "snapshot classes", "nodes"}
    assert found["stages"]["deploy"] == []


def test_a_cluster_that_cannot_be_opened_is_a_line_and_exit_code_2(virtscale: Call) -> None:
    answer = virtscale("doctor", "--cluster", "nowhere")
    assert answer.code == 2
    assert answer.out.splitlines()[-1].startswith("cluster             fail ")


def test_what_is_missing_is_named_for_each_stage_that_needs_it() -> None:
    items = [
        Item("CDI", "missing", "not served", ("deploy", "boot")),
        Item("guests", "missing", "none", ("io",)),
        Item("nodes", "unknown", "may not be read", ("deploy",)),
    ]
    assert {stage: what for stage, what in lacking(items).items() if what} == {
        "deploy": ["CDI"], "boot": ["CDI"], "io": ["guests"],
    }  # fmt: skip


def test_an_older_version_of_a_kind_is_named() -> None:
    world: Any = World.__new__(World)
    object.__setattr__(world, "cluster", OldCluster())
    object.__setattr__(world, "clock", StepClock())
    item = asyncio.run(served(world, VM, "update KubeVirt"))
    assert (item.status, item.found) == ("missing", "kubevirt.io/v1 is not served, v1alpha3 is")
