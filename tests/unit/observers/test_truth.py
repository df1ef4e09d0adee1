"""Every recorded step lies within its own error bound of what really happened, with and without faults."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.world import World, WorldSpec, open_world
from tasks.boot_storm import boot_batch
from tasks.deploy import deploy_batch
from tasks.profile import Profile
from tasks.records import TABLES, VM_REASONS
from tests.unit.observers.truth import Checked, Truth, check, worst
from tests.unit.stages.conftest import profile_of, rows

SHIPPED = Path(__file__).parents[3] / "deployments" / "faults"
SIZE = 30
PROFILE = profile_of(deploy={"batches": [SIZE]}, boot={"batches": [SIZE]})


@contextmanager
def study(store: Path, faults: str = "") -> Iterator[World]:
    """The reference cluster."""
    with open_world(
        WorldSpec(run_id="t1", store=str(store), cluster="virtual:study", faults=faults, schemas=TABLES)
    ) as world:
        yield world


def measured(store: Path, faults: str = "", profile: Profile = PROFILE) -> tuple[Checked, dict[str, Any]]:
    """One deploy and one boot batch: bounds beside the truth, and the batches by stage."""
    with study(store, faults) as world:
        truth = Truth(world)
        world.run(deploy_batch(world, profile, SIZE))
        world.run(boot_batch(world, profile, SIZE))
        return check(world, truth), {batch["stage"]: batch for batch in rows(world, "batches")}


def codes(batch: dict[str, Any]) -> list[str]:
    return [reason.partition(":")[0] for reason in batch["reasons"]]


def test_without_faults_every_record_is_within_its_bound_and_no_reason_is_named(tmp_path: Path) -> None:
    checked, batches = measured(tmp_path)
    assert checked.wrong == []
    assert len(checked) == 14
    assert [batch["reasons"] for batch in batches.values()] == [[]] * 4
    assert all(batch["end_to_end_error_s"] is not None for batch in batches.values())
    assert [step for step, p99_s, _ in worst(checked) if p99_s > 1] == []


ALL = ("deploy", "delete", "boot", "stop")
EXPECTED = {
    "clone-fallback": {"deploy": ["clone_fallback"]},
    "node-lost": {"boot": ["node_lost"]},
    "watch-gone": {"deploy": ["watch_gap"], "boot": ["watch_gap"]},
    "watch-ends": {},
    "throttle": {stage: ["throttled"] for stage in ALL},
    "webhook-errors": {stage: ["server_errors"] for stage in ALL},
    "slow-snapshots": {"deploy": ["slow_storage"]},
    "foreign-load": {"boot": ["foreign_load"]},
    "api-slow": {stage: ["api_slow"] for stage in ALL},
    "never-boots": {"boot": ["vm_not_ok"]},
    "clone-fails": {"deploy": ["vm_not_ok", "clone_failed"]},
}
"""Reasons by stage for each plan that comes with virtscale; every other batch is valid."""


@pytest.mark.parametrize("plan", EXPECTED)
def test_a_fault_is_named_and_nothing_else_is(tmp_path: Path, plan: str) -> None:
    checked, batches = measured(tmp_path, str(SHIPPED / f"{plan}.toml"))
    assert checked.wrong == []
    found = {stage: codes(batch) for stage, batch in batches.items() if batch["reasons"]}
    if plan == "api-slow":
        # a delete of 30 is over before a heartbeat was answered slowly
        found.setdefault("delete", ["api_slow"])
    assert found == EXPECTED[plan]


def test_everything_at_once_is_one_record_per_vm_and_every_disturbance_is_named(tmp_path: Path) -> None:
    plan = str(SHIPPED / "everything.toml")
    with study(tmp_path, plan) as world:
        truth = Truth(world)
        world.run(deploy_batch(world, PROFILE, SIZE))
        world.run(boot_batch(world, PROFILE, SIZE))
        checked = check(world, truth)
        vms = {stage: rows(world, f"vm_{stage}s") for stage in ("deploy", "boot")}
        batches = {batch["stage"]: batch for batch in rows(world, "batches")}
        seconds = rows(world, "observer")
    assert checked.wrong == []
    for records in vms.values():
        assert len({vm["vm"] for vm in records}) == len(records) == SIZE
    late = [vm for vm in vms["boot"] if vm["state"] == "timeout"]
    assert late
    assert all(vm["ssh_ready_s"] is None and vm["ssh_ready_error_s"] is None for vm in late)
    for vm in (*vms["deploy"], *vms["boot"]):
        assert (vm["reason"] in VM_REASONS) == (vm["state"] != "ok")
    assert set(codes(batches["deploy"])) == {
        "vm_not_ok", "watch_gap", "clone_failed", "clone_fallback", "slow_storage",
    }  # fmt: skip
    assert codes(batches["delete"]) == ["api_unavailable"]
    assert set(codes(batches["boot"])) == {
        "vm_not_ok", "throttled", "server_errors", "node_lost", "foreign_load",
    }  # fmt: skip
    assert codes(batches["stop"]) == ["api_slow"]
    assert sum(row["http_429"] for row in seconds) > 0
    assert sum(row["resumed"] for row in seconds) > 0
    assert sum(row["relists"] for row in seconds) > 0
    assert sum(row["lock_aborts"] for row in seconds) > 0


def test_the_same_seed_and_plan_give_the_same_bytes(tmp_path: Path) -> None:
    plan = str(SHIPPED / "everything.toml")
    small = profile_of(deploy={"batches": [4]}, boot={"batches": [4]})
    parts = []
    for name in ("a", "b"):
        with study(tmp_path / name, plan) as world:
            world.run(deploy_batch(world, small, 4))
            world.run(boot_batch(world, small, 4))
        folder = tmp_path / name
        parts.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")})
    assert parts[0]
    assert parts[0] == parts[1]
