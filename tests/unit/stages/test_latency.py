"""The latency stage: segments in real-time VMs, stored one by one, whatever happens outside the guests."""

from pathlib import Path
from typing import Any

import pytest

import tasks.latency
from infra.cluster.kinds import NODE, POD, VM
from infra.cluster.port import Ref, Scope
from infra.errors import StageError
from infra.results.port import Cell
from infra.world import World
from tasks.latency import latency_tool
from tasks.latency_vms import realtime_vm
from tasks.profile import LatencyTool, Profile
from tests.unit.stages.conftest import RUN, OpenWorld, profile_of, rows

SECTION = {"jitter_s": 800, "network_s": 800, "segment_s": 200}
"""A world that is opened settles for a minute: segments are longer, so that nobody comes late."""
TOOLS: tuple[LatencyTool, ...] = ("jitterdebugger", "cyclictest", "oslat", "l2reflect")


def latency_profile(**changes: Any) -> Profile:
    return profile_of(latency={**SECTION, **changes})


def measure(world: World, tool: LatencyTool, **changes: Any) -> dict[str, Any]:
    return world.run(latency_tool(world, latency_profile(**changes), tool))


def stored(world: World) -> list[dict[str, Any]]:
    """What is stored of all segments, whichever attempt did it."""
    tables = ("latency_runs", "latency_histograms")
    found = [row for table in tables for row in rows(world, table)]
    return [{name: value for name, value in row.items() if name != "attempt"} for row in found]


class Killed(BaseException):
    """The process ends here."""


def kill_before_segment(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    measured = tasks.latency._measure

    async def killed(world: World, series: Any, segment: int) -> None:
        if segment == number:
            raise Killed
        await measured(world, series, segment)

    monkeypatch.setattr(tasks.latency, "_measure", killed)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_cpu_of_every_segment_has_a_row_and_a_histogram(
    open_virtual: OpenWorld, tool: LatencyTool
) -> None:
    with open_virtual() as world:
        summary = measure(world, tool)
        runs, histograms = rows(world, "latency_runs"), rows(world, "latency_histograms")
    cpus = [3] if tool == "l2reflect" else [2, 3]
    keys = [(vm, segment, cpu) for segment in range(1, 5) for vm in (0, 1) for cpu in cpus]
    assert [(int(row["vm"][-1]), row["segment"], row["cpu"]) for row in runs] == keys
    assert {(row["state"], row["reason"]) for row in runs} == {("ok", None)}
    for row in runs:
        mine = [each for each in histograms if all(each[k] == row[k] for k in ("vm", "cpu", "segment"))]
        assert sum(each["count"] for each in mine) + row["overflow"] == row["samples"] > 0
        assert row["min_us"] <= row["mean_us"] <= row["max_us"]
        assert 0.8 < row["coverage"] <= 1
    assert (summary["segments"], summary["not_ok"]) == (4, 0)
    assert summary["max_us"] == max(row["max_us"] for row in runs)


@pytest.mark.parametrize("tool", ["jitterdebugger", "l2reflect"])
def test_a_killed_run_goes_on_with_what_the_guests_did_meanwhile(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch, tool: LatencyTool
) -> None:
    kill_before_segment(monkeypatch, 3)
    with pytest.raises(Killed), open_virtual() as world:
        measure(world, tool)
    monkeypatch.undo()
    with open_virtual() as world:
        before = stored(world)
        measure(world, tool)
        after = stored(world)
        attempts = {commit.cell.cell: commit.attempt for commit in world.results.commits()}
    assert {row["segment"] for row in before} == {1, 2}
    assert [row for row in after if row["segment"] <= 2] == before
    assert attempts[f"{tool}-s0"] == attempts[f"{tool}-s1"] == attempts[f"{tool}-s4"] == 1


@pytest.mark.parametrize(("tool", "segment"), [("jitterdebugger", 2), ("l2reflect", 1), ("l2reflect", 3)])
def test_a_run_that_was_killed_stores_the_same_as_one_that_was_not(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tool: LatencyTool, segment: int
) -> None:
    kill_before_segment(monkeypatch, segment)
    with pytest.raises(Killed), open_virtual() as world:
        measure(world, tool)
    monkeypatch.undo()
    with open_virtual() as world:
        measure(world, tool)
        killed, ended_at = stored(world), ended(world, tool)
    (tmp_path / "store").rename(tmp_path / "killed")
    with open_virtual() as world:
        measure(world, tool)
        assert stored(world) == killed
        assert ended(world, tool) == ended_at


def ended(world: World, tool: LatencyTool) -> str:
    """When the tool was done, on the world's clock: what comes next begins there."""
    commit = world.results.last_complete(Cell("latency", tool))
    assert commit
    return str(commit.summary["ended_at"])


def delete_vms(world: World) -> None:
    async def gone() -> None:
        for number in (0, 1):
            await world.cluster.delete(Ref(VM, "virtscale", f"{RUN}-l-000{number}"))
        await world.clock.sleep(600)

    world.run(gone())


@pytest.mark.parametrize(
    ("tool", "attempts"), [("jitterdebugger", [1, 1, 1, 1]), ("l2reflect", [2, 2, 1, 1])]
)
def test_with_new_vms_a_chain_goes_on_and_a_long_process_begins_again(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch, tool: LatencyTool, attempts: list[int]
) -> None:
    kill_before_segment(monkeypatch, 3)
    with open_virtual() as world:
        with pytest.raises(Killed):
            measure(world, tool)
        monkeypatch.undo()
        delete_vms(world)
        measure(world, tool)
        found = [world.results.last_complete(Cell("latency", f"{tool}-s{n}")) for n in range(1, 5)]
        assert [commit.attempt for commit in found if commit] == attempts
        assert {row["segment"] for row in rows(world, "latency_runs")} == {1, 2, 3, 4}


def reboot_vms(world: World) -> None:
    async def rebooted() -> None:
        for verb in ("stop", "start"):
            for number in (0, 1):
                await world.cluster.subresource(Ref(VM, "virtscale", f"{RUN}-l-000{number}"), verb)
            await world.clock.sleep(600)

    world.run(rebooted())


def test_after_a_reboot_a_long_process_begins_again_and_its_old_copies_do_not_count(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_before_segment(monkeypatch, 3)
    with open_virtual() as world:
        with pytest.raises(Killed):
            measure(world, "l2reflect")
        monkeypatch.undo()
        reboot_vms(world)
        measure(world, "l2reflect")
        runs = rows(world, "latency_runs")
    assert {row["segment"]: row["attempt"] for row in runs} == {1: 2, 2: 2, 3: 1, 4: 1}
    assert all(row["state"] == "ok" and row["coverage"] > 0.98 for row in runs)


def stop_in_segment_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool of one VM is gone in the second segment."""
    measured = tasks.latency._measure

    async def stopped_in_2(world: World, series: Any, segment: int) -> None:
        if segment == 2:
            await world.guests.run(f"{RUN}-l-0001", f"systemctl stop {series.plan.unit}", 60)
        await measured(world, series, segment)

    monkeypatch.setattr(tasks.latency, "_measure", stopped_in_2)


def test_a_long_process_that_is_gone_leaves_rows_that_say_why(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in_segment_2(monkeypatch)
    with open_virtual() as world:
        summary = measure(world, "l2reflect")
        lost = [row for row in rows(world, "latency_runs") if row["state"] != "ok"]
    assert {(row["vm"], row["segment"]) for row in lost} == {(f"{RUN}-l-0001", n) for n in (2, 3, 4)}
    assert all(row["reason"].startswith("the unit of l2reflect is inactive before") for row in lost)
    assert summary["not_ok"] == 3


def test_a_segment_without_its_noise_says_so(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = tasks.latency._measure

    async def quiet_from_2(world: World, series: Any, segment: int) -> None:
        if segment == 2:
            for vm in series.boots:
                await world.guests.run(vm, f"systemctl stop {series.plan.noise_unit}", 60)
        await measured(world, series, segment)

    monkeypatch.setattr(tasks.latency, "_measure", quiet_from_2)
    with open_virtual() as world:
        measure(world, "jitterdebugger")
        reasons = {row["segment"]: row["reason"] for row in rows(world, "latency_runs")}
    assert reasons == {1: None, **dict.fromkeys((2, 3, 4), tasks.latency.NOISE_GONE)}


def test_a_tool_that_is_gone_leaves_rows_that_say_why(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in_segment_2(monkeypatch)
    with open_virtual() as world:
        summary = measure(world, "jitterdebugger")
        lost = [row for row in rows(world, "latency_runs") if row["state"] != "ok"]
    assert {row["vm"] for row in lost} == {f"{RUN}-l-0001"}
    assert {row["segment"] for row in lost} == {2, 3, 4}
    assert all(
        row["samples"] is None and row["reason"].startswith("the unit of jitterdebugger") for row in lost
    )
    assert summary["not_ok"] == len(lost) == 6


def test_real_time_vms_are_placed_on_the_real_time_node_and_gone_at_the_end(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_before_segment(monkeypatch, 2)
    with open_virtual() as world:
        with pytest.raises(Killed):
            measure(world, "oslat")
        pods = world.run(world.cluster.list(Scope(POD, "virtscale"))).items
        assert {pod["spec"]["nodeName"] for pod in pods} == {"worker-rt-000"}
        monkeypatch.undo()
        measure(world, "oslat")
        assert world.run(world.cluster.list(Scope(VM))).items == []


def test_without_a_real_time_node_the_error_says_what_is_needed(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(world.cluster.delete(Ref(NODE, "", "worker-rt-000")))
        with pytest.raises(StageError, match=r"a node labelled kubevirt\.io/realtime=true"):
            measure(world, "jitterdebugger")


def test_the_vm_has_what_admission_asks_of_a_real_time_vm(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        made = realtime_vm(world, latency_profile(), 1)
        direct = realtime_vm(world, latency_profile(host_device="vendor.com/rtnic"), 1)
    spec = made["spec"]["template"]["spec"]
    cpu, memory = spec["domain"]["cpu"], spec["domain"]["memory"]
    assert cpu["dedicatedCpuPlacement"] is cpu["isolateEmulatorThread"] is True
    assert (cpu["numa"], cpu["realtime"]) == ({"guestMappingPassthrough": {}}, {"mask": "2-3"})
    assert memory == {"guest": "4Gi", "hugepages": {"pageSize": "1Gi"}}
    assert spec["nodeSelector"] == {"kubevirt.io/realtime": "true"}
    assert spec["networks"][1] == {"name": "rt", "multus": {"networkName": "default/rt-network"}}
    devices = direct["spec"]["template"]["spec"]["domain"]["devices"]
    assert devices["hostDevices"] == [{"name": "rt", "deviceName": "vendor.com/rtnic"}]
    assert len(devices["interfaces"]) == 1
