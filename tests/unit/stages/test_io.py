"""The io stage end to end on a small virtual cluster."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tasks.io_scaling
from infra.cluster.kinds import NODE, VM, VMI
from infra.cluster.port import Ref, Scope
from infra.cluster.virtual.runtime import VirtualCluster
from infra.errors import InvalidRun, StageError
from infra.guests.none import NoGuests
from infra.world import World
from tasks.io_plan import END, JOBS, accesses
from tasks.io_scaling import io_cell, io_end, io_size, io_step
from tasks.profile import Profile
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

SIZES = {"vms_per_node": [1, 2], "nodes": 2, "cap_gib_per_s": 0.2, "run_s": 20, "ramp_s": 2, "baseline_s": 10}


def io_profile(**changes: Any) -> Profile:
    return profile_of(io={**SIZES, **changes})


def measure(world: World, profile: Profile, per_node: int) -> list[dict[str, Any]]:
    """A size and all of its cells; summaries of the cells."""
    world.run(io_size(world, profile, per_node))
    return [world.run(io_cell(world, profile, (per_node, access))) for access in accesses(profile.io)]


def test_a_size_is_measured_cell_by_cell_each_with_its_baseline(open_virtual: OpenWorld) -> None:
    profile = io_profile(vms_per_node=[2])
    with open_virtual() as world:
        summaries = measure(world, profile, 2)
        world.run(io_end(world, profile))
        cells, vms = rows(world, "io_cells"), rows(world, "io_vms")
        commits = [commit.cell.cell for commit in world.results.commits()]
        left = world.run(world.cluster.list(Scope(VM, profile.namespace))).items
    assert commits == ["2", "4-4-read", "4-4-write", "4-64-read", "4-64-write", "end"]
    assert [each["cell"] for each in summaries] == commits[1:-1]
    assert {each["verdict"] for each in summaries} == {"valid"}
    assert len(cells) == 8
    for row in cells:
        assert (row["n"], row["n_ok"], row["verdict"], row["reasons"]) == (4, 4, "valid", [])
        assert row["gib_per_s"] <= 0.2
        assert row["p50_us"] <= row["p95_us"] <= row["p99_us"] <= row["max_us"]
        assert 0 < row["start_skew_ms"] < 20
        assert (row["pause_us"] is None) == (row["phase"] == "load")
    loads = [row for row in cells if row["phase"] == "load"]
    assert all(row["saturated"] is False and row["gib_per_s"] > 0.198 for row in loads)
    assert len(vms) == 32
    assert {(row["vm"], row["node"]) for row in vms} == {
        (f"t1-io-{i:04d}", f"worker-{i % 2:03d}") for i in range(4)
    }
    assert left == []


def test_histograms_of_a_cell_hold_every_io_and_those_of_vms_only_when_asked(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        measure(world, io_profile(vms_per_node=[1], keep_vm_histograms=True), 1)
        bins, vms = rows(world, "io_histograms"), rows(world, "io_vms")
    for phase, seconds in (("load", 20), ("baseline", 10)):
        ios = sum(row["iops"] for row in vms if row["phase"] == phase) * seconds
        whole = sum(row["count"] for row in bins if row["phase"] == phase and row["vm"] is None)
        single = sum(row["count"] for row in bins if row["phase"] == phase and row["vm"] is not None)
        assert whole == single == round(ios)


def test_vms_and_data_sets_stay_for_the_next_size(open_virtual: OpenWorld) -> None:
    profile = io_profile()
    with open_virtual() as world:
        measure(world, profile, 1)
    with open_virtual() as world:
        before = {vmi["metadata"]["uid"] for vmi in instances(world, profile)}
        measure(world, profile, 2)
        cells = rows(world, "io_cells")
        after = {vmi["metadata"]["uid"] for vmi in instances(world, profile)}
    assert (len(before), len(after)) == (2, 4)
    assert before < after
    assert {row["vms"] for row in cells} == {2, 4}
    assert all(row["verdict"] == "valid" for row in cells)


def instances(world: World, profile: Profile) -> list[Any]:
    return world.run(world.cluster.list(Scope(VMI, profile.namespace))).items


def test_a_vm_whose_fio_fails_is_a_record_with_nulls(open_virtual: OpenWorld) -> None:
    with open_virtual() as opened:
        world = replace(opened, guests=Failing(opened.guests, "t1-io-0001"))
        summaries = measure(world, io_profile(vms_per_node=[2]), 2)
        cells, vms = rows(world, "io_cells"), rows(world, "io_vms")
    assert {each["verdict"] for each in summaries} == {"invalid"}
    failed = [row for row in vms if row["state"] != "ok"]
    assert {row["vm"] for row in failed} == {"t1-io-0001"}
    assert len(failed) == 8
    for row in failed:
        assert (row["iops"], row["p50_us"], row["max_us"]) == (None, None, None)
        assert "no space left" in row["reason"]
    assert all((row["n"], row["n_ok"]) == (4, 3) for row in cells)
    assert all(row["reasons"] == ["vm_not_ok: 1 of 4 failed"] for row in cells)
    assert not any(row["saturated"] for row in cells)


class Failing:
    """Guests of which one refuses commands with a word in them: by itself its job file."""

    def __init__(self, guests: Any, vm: str, word: str = JOBS) -> None:
        self._guests, self._vm, self._word = guests, vm, word

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guests, name)

    async def run(self, vm: str, command: str, timeout_s: float) -> bytes:
        from infra.errors import GuestError

        if vm == self._vm and self._word in command:
            raise GuestError(f"guest {vm}: fio: no space left on device (exit 1)")
        found: bytes = await self._guests.run(vm, command, timeout_s)
        return found


def test_without_guests_the_stage_is_refused(open_virtual: OpenWorld) -> None:
    with open_virtual() as opened:
        world = replace(opened, guests=NoGuests())
        with pytest.raises(InvalidRun, match="leave io out of --stages"):
            world.run(io_size(world, io_profile(), 1))


def test_more_nodes_than_there_are_is_said(open_virtual: OpenWorld) -> None:
    with (
        open_virtual() as world,
        pytest.raises(StageError, match=r"io.nodes is 9, but 3 nodes are schedulable"),
    ):
        world.run(io_size(world, io_profile(nodes=9), 1))


def test_a_data_set_that_does_not_fit_is_a_reason_of_every_vm(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        measure(world, io_profile(vms_per_node=[1], file_mib=9), 1)
        reasons = {row["reason"] for row in rows(world, "io_vms")}
    assert reasons == {"data set: 18.83 GiB are needed, 17.00 GiB are there"}


def last_rows(world: World) -> list[dict[str, Any]]:
    """What is stored of cells, VMs and histograms, whichever attempt did it."""
    tables = ("io_cells", "io_vms", "io_histograms")
    found = [row for table in tables for row in rows(world, table)]
    return [{name: value for name, value in row.items() if name != "attempt"} for row in found]


class Killed(BaseException):
    """The process ends here: nothing is cleaned, nothing is committed."""


STEPS = ("1", "1-64-write", "1-4-read", END)
CELLS = ("1", "2-64-write", "2-4-read", END)


def take(open_virtual: OpenWorld, steps: Iterable[str]) -> None:
    """Steps as a run takes them, each in a world of its own."""
    for step in steps:
        with open_virtual() as world:
            world.run(io_step(world, io_profile(vms_per_node=[1]), step))


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_step_that_was_killed_is_done_again_and_the_rows_are_those_of_a_run_that_was_not(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: int
) -> None:
    take(open_virtual, STEPS[:step])
    kill_at_commit(monkeypatch)
    with pytest.raises(Killed):
        take(open_virtual, [STEPS[step]])
    monkeypatch.undo()
    take(open_virtual, STEPS[step:])
    with open_virtual() as world:
        killed = last_rows(world)
        attempts = {commit.cell.cell: commit.attempt for commit in world.results.commits()}
    (tmp_path / "store").rename(tmp_path / "killed")
    take(open_virtual, STEPS)
    with open_virtual() as world:
        assert last_rows(world) == killed
    # the last step stores no rows, so nothing of its first attempt is left
    once = dict.fromkeys(CELLS, 1)
    assert attempts == {**once, CELLS[step]: 1 if CELLS[step] == END else 2}


def kill_at_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    monkeypatch.setattr(tasks.io_scaling, "remove_vms", killed)
    monkeypatch.setattr(VirtualCluster, "state", killed)


def test_an_interrupted_cell_is_done_again_with_new_vms(open_virtual: OpenWorld) -> None:
    profile = io_profile(vms_per_node=[1])
    with open_virtual() as world:
        world.run(io_size(world, profile, 1))

        async def interrupted() -> None:
            task = asyncio.ensure_future(io_cell(world, profile, (1, "4-read")))
            await world.clock.sleep(60.0)
            task.cancel()
            await asyncio.wait({task})

        world.run(interrupted())
        assert instances(world, profile) == []
    with open_virtual() as world:
        summary = world.run(io_cell(world, profile, (1, "4-read")))
        attempts = [(each.cell.cell, each.attempt, each.complete) for each in world.results.commits()]
    assert attempts == [("1", 1, True), ("2-4-read", 1, False), ("2-4-read", 2, True)]
    assert (summary["n_ok"], summary["verdict"]) == (2, "valid")


def test_a_cell_keeps_to_the_nodes_of_its_size(open_virtual: OpenWorld) -> None:
    profile = io_profile(vms_per_node=[1], nodes=None)
    with open_virtual() as world:
        size = world.run(io_size(world, profile, 1))
        cordon = {"spec": {"unschedulable": True}}
        world.run(world.cluster.patch(Ref(NODE, "", "worker-000"), cordon))
        summary = world.run(io_cell(world, profile, (1, "4-read")))
    assert (size["vms"], summary["cell"], summary["n_ok"]) == (3, "3-4-read", 3)


def test_a_vm_that_was_broken_when_its_size_was_made_is_not_waited_for_again(
    open_virtual: OpenWorld,
) -> None:
    profile = io_profile(vms_per_node=[1], limit_s=600)
    with open_virtual() as opened:
        world = replace(opened, guests=Failing(opened.guests, "t1-io-0001", "true"))
        size = world.run(io_size(world, profile, 1))
    assert list(size["broken"]) == ["t1-io-0001"]
    with open_virtual() as opened:
        world = replace(opened, guests=Failing(opened.guests, "t1-io-0001", "true"))
        began_ns = world.clock.now_ns()
        world.run(io_cell(world, profile, (1, "4-read")))
        took_s = (world.clock.now_ns() - began_ns) / 1e9
        states = {row["vm"]: row["state"] for row in rows(world, "io_vms")}
    assert states == {"t1-io-0000": "ok", "t1-io-0001": "failed"}
    assert took_s < 300
