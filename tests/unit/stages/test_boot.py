import asyncio
from dataclasses import replace

import pytest

from infra.cluster.kinds import VM, VMI
from infra.cluster.port import Ref, Scope
from infra.errors import NotFound, Unknown
from infra.guests.none import NoGuests
from infra.world import World
from tasks.boot_storm import boot_batch
from tasks.boot_vms import BootVm, chosen
from tasks.requests import DELETED
from tests.unit.stages.conftest import OpenWorld, profile_of, rows
from tests.unit.stages.fakes import RefusingCluster

PROFILE = profile_of(boot={"batches": [2, 4]})
ORDER = ("acknowledged_s", "vmi_created_s", "pod_scheduled_s", "vmi_scheduled_s", "running_s")


def test_a_storm_is_seen_from_the_request_to_ssh_and_stopped(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        summary = world.run(boot_batch(world, PROFILE, 2))
        boots, stops, batches = rows(world, "vm_boots"), rows(world, "vm_stops"), rows(world, "batches")
        instances = world.run(world.cluster.list(Scope(VMI, PROFILE.namespace))).items
    assert summary["verdict"] == "valid"
    assert (summary["first_boots"], summary["reboots"]) == (2, 0)
    for vm in boots:
        assert vm["state"] == "ok"
        assert vm["node"]
        assert vm["running_s"] <= vm["ip_known_s"] + 60
        assert vm["vmi_created_s"] <= vm["pod_scheduled_s"] <= vm["vmi_scheduled_s"] <= vm["running_s"]
        assert vm["tcp_open_s"] <= vm["ssh_banner_s"] <= vm["ssh_ready_s"]
        assert vm["ssh_ready_error_s"] is not None
    assert all(vm["halted_s"] > 0 for vm in stops)
    assert [row["stage"] for row in batches] == ["boot", "stop"]
    assert batches[0]["end_to_end_s"] == max(vm["ssh_ready_s"] for vm in boots)
    assert batches[0]["study_end_to_end_s"] == max(vm["ssh_banner_s"] for vm in boots)
    assert instances == []


def test_without_guests_a_storm_ends_at_running(open_virtual: OpenWorld) -> None:
    with open_virtual() as opened:
        world = replace(opened, guests=NoGuests())
        summary = world.run(boot_batch(world, PROFILE, 2))
        boots, batch = rows(world, "vm_boots"), rows(world, "batches")[0]
        steps = {row["step"] for row in rows(world, "percentiles") if row["stage"] == "boot"}
    assert summary["verdict"] == "valid"
    assert all(vm["state"] == "ok" and vm["ip_known_s"] is vm["ssh_ready_s"] is None for vm in boots)
    assert steps == {"acknowledged", "vmi_created", "pod_scheduled", "vmi_scheduled", "running"}
    assert batch["end_to_end_s"] == max(vm["running_s"] for vm in boots)
    assert batch["study_end_to_end_s"] is None


def test_a_later_storm_tells_first_boots_from_reboots(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(boot_batch(world, PROFILE, 2))
    with open_virtual() as world:
        summary = world.run(boot_batch(world, PROFILE, 4))
        ordinals = sorted(vm["boot_ordinal"] for vm in rows(world, "vm_boots") if vm["batch"] == 4)
    assert ordinals == [1, 1, 2, 2]
    assert (summary["first_boots"], summary["reboots"]) == (2, 2)


def test_a_primed_storm_has_no_first_boot(open_virtual: OpenWorld) -> None:
    profile = profile_of(boot={"batches": [2, 4], "prime": True})
    with open_virtual() as world:
        summary = world.run(boot_batch(world, profile, 4))
    assert (summary["first_boots"], summary["reboots"]) == (0, 4)


def test_a_vm_that_never_boots_is_a_timeout_with_nulls_after_running(open_virtual: OpenWorld) -> None:
    profile = profile_of(boot={"batches": [4], "limit_s": 600})
    with open_virtual('[[fault]]\nkind = "never-boots"\nvms = 1\nstage = "boot"\n') as world:
        summary = world.run(boot_batch(world, profile, 4))
        boots, stops = rows(world, "vm_boots"), rows(world, "vm_stops")
    late = [vm for vm in boots if vm["state"] == "timeout"]
    assert len(boots) == 4
    assert len(late) == 1
    assert late[0]["running_s"] is not None
    assert (late[0]["tcp_open_s"], late[0]["ssh_ready_s"]) == (None, None)
    assert (late[0]["reason"], late[0]["detail"]) == ("vm_not_ok", "VirtualMachine Running")
    assert summary["verdict"] == "invalid"
    assert [vm["state"] for vm in stops] == ["ok"] * 4


def test_a_boot_vm_whose_clone_failed_is_a_record_of_its_storm(open_virtual: OpenWorld) -> None:
    profile = profile_of(boot={"batches": [4], "limit_s": 600})
    with open_virtual('[[fault]]\nkind = "clone-fails"\nvms = 1\nstage = "boot"\n') as world:
        world.run(boot_batch(world, profile, 4))
        boots, stops = rows(world, "vm_boots"), rows(world, "vm_stops")
    late = [vm for vm in boots if vm["state"] != "ok"]
    assert len(boots) == 4
    assert len(late) == 1
    assert late[0]["state"] == "failed"
    assert (late[0]["requested_s"], late[0]["vmi_created_s"]) == (None, None)
    assert len(stops) == 3


def test_placement_has_a_row_for_every_schedulable_node(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(boot_batch(world, PROFILE, 2))
        placed = rows(world, "placements")
    assert len(placed) == 3
    assert sum(row["vms"] for row in placed) == 2
    assert sum(row["free_share"] for row in placed) == 1.0


def test_a_start_whose_outcome_is_unknown_is_read_back(open_virtual: OpenWorld) -> None:
    lost = [Unknown("no answer")]

    def refuse(verb: str, _name: str) -> Exception | None:
        return lost.pop() if verb == "start" and lost else None

    with open_virtual(through=lambda cluster: RefusingCluster(cluster, refuse, after=True)) as world:
        world.run(boot_batch(world, PROFILE, 2))
        boots = rows(world, "vm_boots")
    assert [vm["state"] for vm in boots] == ["ok", "ok"]


def test_a_vm_that_somebody_deletes_in_a_storm_is_lost_at_once(open_virtual: OpenWorld) -> None:
    async def storm(world: World) -> None:
        work = asyncio.ensure_future(boot_batch(world, PROFILE, 4))
        victim = Ref(VM, PROFILE.namespace, f"{world.run_id}-b-0001")
        instance = Scope(VMI, PROFILE.namespace, fields=f"metadata.name={victim.name}")
        while not (await world.cluster.list(instance)).items:
            await world.clock.sleep(0.05)
        await world.cluster.delete(victim)
        await work

    with open_virtual() as world:
        world.run(storm(world))
        boots, batch = rows(world, "vm_boots"), rows(world, "batches")[0]
    assert sorted((vm["state"], vm["detail"]) for vm in boots) == [
        ("lost", DELETED), ("ok", None), ("ok", None), ("ok", None),
    ]  # fmt: skip
    assert batch["reasons"] == ["vm_not_ok: 1 of 4 lost"]
    assert batch["limit_s"] == PROFILE.boot.limit_s


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_a_vm_that_is_gone_when_its_turn_comes_is_lost(open_virtual: OpenWorld, verb: str) -> None:
    def refuse(said: str, name: str) -> Exception | None:
        return NotFound("not found") if said == verb and name.endswith("-0001") else None

    with open_virtual(through=lambda cluster: RefusingCluster(cluster, refuse)) as world:
        world.run(boot_batch(world, profile_of(boot={"batches": [4]}), 4))
        records = rows(world, "vm_boots" if verb == "start" else "vm_stops")
    states = {vm["vm"][-4:]: (vm["state"], vm["detail"]) for vm in records}
    assert states["0001"] == ("lost", DELETED)
    assert len(states) == 4


def test_an_interrupted_storm_leaves_no_vm_and_is_done_again(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:

        async def interrupted() -> bool:
            task = asyncio.ensure_future(boot_batch(world, PROFILE, 4))
            while not (await world.cluster.list(Scope(VMI, PROFILE.namespace))).items:
                await world.clock.sleep(0.1)
            task.cancel()
            return (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError

        assert world.run(interrupted())
    with open_virtual() as world:
        summary = world.run(boot_batch(world, PROFILE, 4))
    assert summary["n_ok"] == 4


def test_the_choice_of_vms_depends_on_run_size_and_repeat_alone() -> None:
    vms = [BootVm(f"r-b-{i:04d}", f"uid-{i}", 1) for i in range(50)]
    again = [vm._replace(uid=f"other-{vm.uid}", ordinal=2) for vm in vms]
    names = [vm.name for vm in chosen(vms, "r", 10, 1)]
    assert names == [vm.name for vm in chosen(again, "r", 10, 1)]
    assert names != [vm.name for vm in chosen(vms, "r", 10, 2)]
