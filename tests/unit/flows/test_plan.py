"""The plan says what a run would create, need and take, and touches nothing."""

import json
from pathlib import Path

import pytest

from flows.estimate import deploy_s, largest, needs, planned_stages, total_s
from infra.cluster.virtual.description import load_description
from tasks.profile import load_profile
from tests.unit.flows.conftest import Call


def test_the_plan_names_sizes_objects_and_room(virtscale: Call, tmp_path: Path) -> None:
    answer = virtscale("plan")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("study on virtual:study (129 workers, 6,000 VMs largest)\n")
    assert "12,300 VMs" in answer.out
    assert answer.out.endswith("6,000 x 1 CPU, 2 GiB; largest node share 47 of 500 pods\n")
    assert list(tmp_path.iterdir()) == []


def test_the_plan_for_machines_is_in_seconds_and_gib(virtscale: Call) -> None:
    found = json.loads(virtscale("plan", "--profile", "smoke", "--stages", "deploy", "--json").out)
    assert [stage["creates"] for stage in found["stages"]] == ["7 VMs"]
    assert found["needs"] == {"vms": 4, "cores": 4, "memory_gib": 8.0, "disk_gib": 105.0, "raw_gib": 315.0}


def test_six_thousand_deploys_from_one_source_take_forty_minutes() -> None:
    assert deploy_s(6000, 1, load_description("study")) == pytest.approx(40 * 60, rel=0.05)


def test_a_stated_rate_is_a_floor_of_the_estimate() -> None:
    cluster = load_description("fast")
    paced = load_profile("smoke", ["deploy.rate_per_s=0.01", "stages=deploy"])
    assert total_s(planned_stages(paced, cluster)) == pytest.approx(700)


def test_how_long_a_real_cluster_takes_is_not_known() -> None:
    assert total_s(planned_stages(load_profile("study"), None)) is None


def test_only_the_stages_asked_for_need_room() -> None:
    profile = load_profile("smoke", ["boot.batches=9", "stages=deploy"])
    assert largest(profile) == needs(profile).vms == 4
