"""Stage code over recordings of the real controllers: the awkward states lead to the right ends."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from infra.cluster.kinds import DATA_VOLUME, PVC, VM, VMI, Kind
from infra.errors import StageError
from infra.guests.none import NoGuests
from infra.results.port import Cell
from infra.world import World
from tasks.batch import NS, Batch
from tasks.boot_storm import Boots, start_vms
from tasks.deletion import delete_vms, doomed_batch
from tasks.golden_image import canary
from tasks.profile import Profile
from tasks.provisioning import Clones, Plan, explain, provision
from tasks.stopping import stop_vms
from tests.unit.stages.conftest import RUN, OpenWorld, profile_of
from tests.unit.stages.replayed import VM_NAME, Line, RecordedCluster, recorded

UID = f"VirtualMachine {VM_NAME}"
Changed = Callable[[list[Line]], list[Line]]


def profile_within(limit_s: float) -> Profile:
    limits = {"limit_s": limit_s}
    return profile_of(
        deploy={"batches": [1], **limits},
        boot={"batches": [1], **limits},
        golden_image=limits,
        stop_limit_s=limit_s,
        delete_limit_s=limit_s,
    )


def as_recorded(lines: list[Line]) -> list[Line]:
    return lines


def without_words_between(lines: list[Line]) -> list[Line]:
    """As 27 of 200 VMs showed it: neither Starting nor Stopping."""
    return [line for line in lines if line.said not in ("Starting", "Stopping")]


def every_state_thrice(lines: list[Line]) -> list[Line]:
    return [again for line in lines for again in [line, *(2 * [line] if line.type == "MODIFIED" else [])]]


def replayed(world: World, cluster: RecordedCluster) -> World:
    return replace(world, cluster=cluster, guests=NoGuests())


async def started(world: World, cluster: RecordedCluster, limit_s: float) -> Batch:
    batch, profile = Batch("boot", [VM_NAME]), profile_within(limit_s)
    batch.uids = [UID]
    cluster.skip_to("start")
    await start_vms(replayed(world, cluster), profile, Boots(batch, NoGuests()))
    await explain(replayed(world, cluster), profile, "boot", batch)
    return batch


async def stopped(world: World, cluster: RecordedCluster) -> Batch:
    batch = Batch("stop", [VM_NAME])
    cluster.skip_to("stop")
    await stop_vms(replayed(world, cluster), profile_within(30), batch)
    return batch


async def deleted(world: World, cluster: RecordedCluster) -> Batch:
    batch = doomed_batch({VM_NAME: UID})
    cluster.skip_to("delete")
    await delete_vms(replayed(world, cluster), profile_within(30), batch, [])
    return batch


async def deployed(world: World, cluster: RecordedCluster, limit_s: float) -> Clones:
    batch, profile = Batch("deploy", [VM_NAME]), profile_within(limit_s)
    clones = Clones(batch)
    plan = Plan("deploy", 1, batch.names, None, limit_s)
    await provision(replayed(world, cluster), profile, plan, clones)
    return clones


def took_s(lines: list[Line], mark: str, kind: Kind, **what: str) -> float:
    """From a request to the first event of a kind after it that says so."""
    begin = next(line.t_s for line in lines if line.kind is None and line.name == mark)
    found = next(line.t_s for line in lines if line.kind is kind and line.t_s > begin and line.says(what))
    return found - begin


def after_s(batch: Batch, step: str) -> float | None:
    seen = batch.seen[step][0]
    return None if seen is None else (seen - batch.released_ns) / NS


@pytest.mark.parametrize("changed", [as_recorded, without_words_between, every_state_thrice])
def test_a_vm_runs_when_its_instance_does_whatever_its_own_words_are(
    open_virtual: OpenWorld, changed: Changed
) -> None:
    lines = changed(recorded("one_life"))
    with open_virtual() as world:
        batch = world.run(started(world, RecordedCluster(lines, world.clock), 30))
    assert batch.state == ["ok"]
    assert after_s(batch, "running") == pytest.approx(took_s(lines, "start", VMI, said="Running"))
    steps = [after_s(batch, step) for step in ("vmi_created", "pod_scheduled", "vmi_scheduled", "running")]
    assert None not in steps
    assert steps == sorted(steps, key=lambda s: s or 0)


@pytest.mark.parametrize(
    ("name", "limit_s", "word"),
    [
        ("unschedulable", 3, "ErrorUnschedulable"),
        ("image_pull", 5, "ImagePullBackOff"),
        ("launcher_fails", 5, "CrashLoopBackOff"),
        ("never_scheduled", 2, "Starting"),
        ("claim_missing", 2, "ErrorPvcNotFound"),
        ("claim_missing", 5, "WaitingForVolumeBinding"),
    ],
)
def test_a_vm_that_does_not_run_is_a_timeout_in_the_words_of_its_state(
    open_virtual: OpenWorld, name: str, limit_s: float, word: str
) -> None:
    with open_virtual() as world:
        batch = world.run(started(world, RecordedCluster(recorded(name), world.clock), limit_s))
    assert batch.state == ["timeout"]
    assert after_s(batch, "running") is None
    assert word in str(batch.reason[0])


def test_a_guest_that_crashed_after_running_has_run(open_virtual: OpenWorld) -> None:
    lines = recorded("guest_crashes")
    with open_virtual() as world:
        batch = world.run(started(world, RecordedCluster(lines, world.clock), 30))
    assert batch.state == ["ok"]
    assert after_s(batch, "running") == pytest.approx(took_s(lines, "start", VMI, said="Running"))


def test_a_start_that_is_refused_because_it_was_accepted_before_counts(open_virtual: OpenWorld) -> None:
    lines = recorded("one_life")
    with open_virtual() as world:
        batch = world.run(started(world, RecordedCluster(lines, world.clock, refused="start"), 30))
    assert batch.state == ["ok"]
    assert batch.attempts == [1]


@pytest.mark.parametrize("name", ["started_early", "first_consumer"])
def test_a_vm_whose_disk_is_not_ready_starts_when_it_is(open_virtual: OpenWorld, name: str) -> None:
    lines = recorded(name)
    with open_virtual() as world:
        batch = world.run(started(world, RecordedCluster(lines, world.clock), 30))
    assert batch.state == ["ok"]
    ready_s = took_s(lines, "start", DATA_VOLUME, said="Succeeded")
    assert ready_s < (after_s(batch, "running") or 0)


@pytest.mark.parametrize("changed", [as_recorded, without_words_between, every_state_thrice])
def test_a_vm_that_says_stopped_is_halted_only_without_its_instance(
    open_virtual: OpenWorld, changed: Changed
) -> None:
    lines = changed(recorded("one_life"))
    with open_virtual() as world:
        batch = world.run(stopped(world, RecordedCluster(lines, world.clock)))
    gone_s = took_s(lines, "stop", VMI, type="DELETED")
    assert batch.state == ["ok"]
    assert took_s(lines, "stop", VM, said="Stopped") < gone_s
    assert after_s(batch, "halted") == pytest.approx(gone_s)


def test_an_instance_that_failed_instead_of_succeeding_is_halted_too(open_virtual: OpenWorld) -> None:
    lines = recorded("unschedulable")
    with open_virtual() as world:
        batch = world.run(stopped(world, RecordedCluster(lines, world.clock)))
    assert took_s(lines, "stop", VMI, said="Failed") < took_s(lines, "stop", VMI, type="DELETED")
    assert batch.state == ["ok"]
    assert after_s(batch, "halted") == pytest.approx(took_s(lines, "stop", VM, said="Stopped"))


def test_a_vm_that_somebody_deletes_while_it_stops_is_lost(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        cluster = RecordedCluster(recorded("image_pull"), world.clock, through=True)
        batch = world.run(stopped(world, cluster))
    assert batch.state == ["lost"]


@pytest.mark.parametrize(
    ("name", "last"), [("one_life", VM), ("first_consumer", PVC), ("started_early", PVC)]
)
def test_a_vm_is_gone_when_the_last_of_its_objects_is(open_virtual: OpenWorld, name: str, last: Kind) -> None:
    lines = recorded(name)
    with open_virtual() as world:
        batch = world.run(deleted(world, RecordedCluster(lines, world.clock)))
    assert batch.state == ["ok"]
    assert after_s(batch, "gone") == pytest.approx(took_s(lines, "delete", last, type="DELETED"))


def test_the_first_stopped_is_not_deployed(open_virtual: OpenWorld) -> None:
    lines = recorded("deployed")
    took = partial(took_s, lines, "create")
    with open_virtual() as world:
        batch = world.run(deployed(world, RecordedCluster(lines, world.clock), 30)).batch
    assert batch.state == ["ok"]
    assert took(VM, said="Stopped") < took(DATA_VOLUME, type="ADDED")
    assert after_s(batch, "datavolume_succeeded") == pytest.approx(took(DATA_VOLUME, said="Succeeded"))
    assert after_s(batch, "pvc_bound") == pytest.approx(took(PVC, said="Bound"))
    ends = (took(PVC, said="Bound"), took(DATA_VOLUME, said="Succeeded"))
    assert (after_s(batch, "deployed") or 0) > max(ends), "the VM said Provisioning until then"


def test_a_disk_that_waits_for_its_first_consumer_is_never_deployed(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        clones = world.run(deployed(world, RecordedCluster(recorded("first_consumer"), world.clock), 60))
    assert clones.batch.state == ["timeout"]
    assert after_s(clones.batch, "datavolume_succeeded") is None


def test_an_error_of_60_ms_is_no_failure_and_a_start_by_somebody_else_is_noted(
    open_virtual: OpenWorld,
) -> None:
    lines = recorded("first_consumer")
    assert any(line.said == "DataVolumeError" for line in lines)
    with open_virtual() as world:
        clones = world.run(deployed(world, RecordedCluster(lines, world.clock, through=True), 60))
    assert clones.batch.state == ["ok"]
    assert clones.failures == 0
    assert clones.batch.journal.foreign == {VM_NAME}


def test_a_clone_that_is_copied_is_counted_although_it_is_not_done(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        clones = world.run(deployed(world, RecordedCluster(recorded("copied"), world.clock), 30))
    assert clones.batch.state == ["timeout"]
    assert clones.copied == {0}


def test_the_canary_ends_when_its_clone_is_copied_and_says_why(open_virtual: OpenWorld) -> None:
    lines = recorded("copied", {f"{VM_NAME}-root": f"{RUN}-canary"})
    with open_virtual() as world:
        attempt = world.results.begin(Cell("golden-image", "0"))
        copied = replayed(world, RecordedCluster(lines, world.clock))
        with pytest.raises(StageError, match=r"canary: cloned by copy, not from the snapshot \(The volume m"):
            world.run(canary(copied, profile_within(30), attempt))
