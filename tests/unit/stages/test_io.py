"""The io stage end to end on a small virtual cluster."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from infra.cluster.kinds import VM, VMI
from infra.cluster.port import Scope
from infra.errors import InvalidRun, StageError
from infra.guests.none import NoGuests
from infra.results.port import Cell
from infra.world import World
from tasks.io_plan import JOBS
from tasks.io_scaling import io_size
from tasks.profile import Profile
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

SIZES = {"vms_per_node": [1, 2], "nodes": 2, "cap_gib_per_s": 0.2, "run_s": 20, "ramp_s": 2, "baseline_s": 10}


def io_profile(**changes: Any) -> Profile:
    return profile_of(io={**SIZES, **changes})


def test_a_size_is_measured_cell_by_cell_each_with_its_baseline(open_virtual: OpenWorld) -> None:
    profile = io_profile(vms_per_node=[2])
    with open_virtual() as world:
        summary = world.run(io_size(world, profile, 2))
        cells, vms = rows(world, "io_cells"), rows(world, "io_vms")
        commits = [commit.cell for commit in world.results.commits()]
        left = world.run(world.cluster.list(Scope(VM, profile.namespace))).items
    assert (summary["vms"], summary["cells"], summary["verdict"]) == (4, 4, "valid")
    names = {"4-4-read", "4-4-write", "4-64-read", "4-64-write"}
    assert {cell.cell for cell in commits if cell.cell != "2"} == names
    assert commits[-1] == Cell("io", "2")
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
        world.run(io_size(world, io_profile(vms_per_node=[1], keep_vm_histograms=True), 1))
        bins, vms = rows(world, "io_histograms"), rows(world, "io_vms")
    for phase, seconds in (("load", 20), ("baseline", 10)):
        ios = sum(row["iops"] for row in vms if row["phase"] == phase) * seconds
        whole = sum(row["count"] for row in bins if row["phase"] == phase and row["vm"] is None)
        single = sum(row["count"] for row in bins if row["phase"] == phase and row["vm"] is not None)
        assert whole == single == round(ios)


def test_vms_and_data_sets_stay_for_the_next_size(open_virtual: OpenWorld) -> None:
    profile = io_profile()
    with open_virtual() as world:
        world.run(io_size(world, profile, 1))
    with open_virtual() as world:
        before = {vmi["metadata"]["uid"] for vmi in instances(world, profile)}
        world.run(io_size(world, profile, 2))
        cells = rows(world, "io_cells")
    assert len(before) == 2
    assert {row["vms"] for row in cells} == {2, 4}
    assert all(row["verdict"] == "valid" for row in cells)


def instances(world: World, profile: Profile) -> list[Any]:
    return world.run(world.cluster.list(Scope(VMI, profile.namespace))).items


def test_a_vm_whose_fio_fails_is_a_record_with_nulls(open_virtual: OpenWorld) -> None:
    with open_virtual() as opened:
        world = replace(opened, guests=Failing(opened.guests, "t1-io-0001"))
        summary = world.run(io_size(world, io_profile(vms_per_node=[2]), 2))
        cells, vms = rows(world, "io_cells"), rows(world, "io_vms")
    assert summary["verdict"] == "invalid"
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
    """Guests of which one refuses its job file."""

    def __init__(self, guests: Any, vm: str) -> None:
        self._guests, self._vm = guests, vm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guests, name)

    async def run(self, vm: str, command: str, timeout_s: float) -> bytes:
        from infra.errors import GuestError

        if vm == self._vm and JOBS in command:
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
        world.run(io_size(world, io_profile(vms_per_node=[1], file_mib=9), 1))
        reasons = {row["reason"] for row in rows(world, "io_vms")}
    assert reasons == {"data set: 18.83 GiB are needed, 17.00 GiB are there"}


def test_an_interrupted_size_keeps_its_finished_cells_and_is_done_again(open_virtual: OpenWorld) -> None:
    profile = io_profile(vms_per_node=[1])

    def committed(world: World) -> list[str]:
        return [each.cell.cell for each in world.results.commits() if each.complete]

    with open_virtual() as world:

        async def interrupted() -> None:
            task = asyncio.ensure_future(io_size(world, profile, 1))
            while not committed(world):
                await world.clock.sleep(5.0)
            task.cancel()
            await asyncio.wait({task})

        world.run(interrupted())
        first = committed(world)
        assert instances(world, profile) == []
    with open_virtual() as world:
        summary = world.run(io_size(world, profile, 1))
        again = committed(world)
    assert len(first) == 1
    assert again.count(first[0]) == 1
    assert summary["cells"] == 4
    assert summary["verdict"] == "valid"
