import asyncio
from collections.abc import Callable

from infra.cluster.port import Object
from tasks.batch import Batch
from tasks.deletion import Removal
from tasks.provisioning import Clones
from tests.unit.stages.fakes import StepClock


def vm(name: str, printable: str = "") -> Object:
    return {"metadata": {"name": name}, "spec": {}, "status": {"printableStatus": printable}}


def disk(name: str, phase: str) -> Object:
    return {"metadata": {"name": f"{name}-root"}, "spec": {}, "status": {"phase": phase}}


def in_loop(check: Callable[[], None]) -> None:
    async def run() -> None:
        check()

    asyncio.run(run())


def clones_of(*names: str) -> Clones:
    batch = Batch("deploy", names)
    batch.release(StepClock())
    for i in range(len(names)):
        batch.seen["acknowledged"][i] = batch.released_ns
    return Clones(batch)


def test_stopped_before_the_data_volume_exists_is_not_deployed() -> None:
    def check() -> None:
        clones = clones_of("a")
        clones.vm("MODIFIED", vm("a", "Stopped"), 2 * 10**9)
        clones.vm("MODIFIED", vm("a", "Provisioning"), 3 * 10**9)
        clones.data_volume("MODIFIED", disk("a", "Succeeded"), 4 * 10**9)
        clones.claim("MODIFIED", disk("a", "Bound"), 5 * 10**9)
        assert clones.batch.state == [""]
        clones.vm("MODIFIED", vm("a", "Stopped"), 6 * 10**9)
        assert clones.batch.state == ["ok"]
        assert clones.batch.rows(1)[0]["deployed_s"] == 5.0

    in_loop(check)


def test_a_data_volume_that_vanishes_after_success_has_succeeded() -> None:
    def check() -> None:
        clones = clones_of("a")
        clones.data_volume("MODIFIED", disk("a", "Succeeded"), 2 * 10**9)
        clones.data_volume("DELETED", disk("a", "Succeeded"), 3 * 10**9)
        clones.claim("MODIFIED", disk("a", "Bound"), 4 * 10**9)
        clones.vm("MODIFIED", vm("a", "Stopped"), 5 * 10**9)
        assert clones.batch.state == ["ok"]

    in_loop(check)


def test_a_short_data_volume_error_is_no_failure_and_a_lasting_one_is() -> None:
    def check() -> None:
        clones = clones_of("a", "b")
        for name in ("a", "b"):
            clones.vm("MODIFIED", vm(name, "DataVolumeError"), 2 * 10**9)
        clones.vm("MODIFIED", vm("a", "Provisioning"), 3 * 10**9)
        clones.vm("MODIFIED", vm("a", "DataVolumeError"), 50 * 10**9)
        for i in (0, 1):
            clones._still_in_error(i, 2 * 10**9)
        assert clones.batch.state == ["", "failed"]

    in_loop(check)


def test_a_vm_that_somebody_deletes_is_lost() -> None:
    def check() -> None:
        clones = clones_of("a", "b")
        clones.vm("DELETED", vm("a"), 2 * 10**9)
        clones.relisted({"x"}, 3 * 10**9)
        assert clones.batch.state == ["lost", "lost"]
        assert clones.batch.finished.done()

    in_loop(check)


def test_steps_of_a_decided_vm_do_not_change() -> None:
    def check() -> None:
        clones = clones_of("a")
        clones.data_volume("MODIFIED", disk("a", "Failed"), 2 * 10**9)
        clones.claim("MODIFIED", disk("a", "Bound"), 3 * 10**9)
        row = clones.batch.rows(1)[0]
        assert (row["state"], row["pvc_bound_s"]) == ("failed", None)

    in_loop(check)


def test_what_a_list_does_not_show_is_gone() -> None:
    def check() -> None:
        batch = Batch("delete", ["a", "b"])
        removal = Removal(batch, {"pv-a": 0})
        removal.disks_listed({"a-root"}, 1)
        removal.claims_listed({"a-root"}, 1)
        removal.vms_listed({"a", "b"}, 1)
        batch.release(StepClock())
        removal.vm("DELETED", vm("b"), 2 * 10**9)
        assert batch.state == ["", "ok"]
        without_volume = batch.rows(2)[1]
        assert (without_volume["gone_s"], without_volume["volume_gone_s"]) == (1.0, 1.0)
        for handler in (removal.vms_listed, removal.disks_listed, removal.claims_listed):
            handler(set(), 3 * 10**9)
        assert batch.state[0] == ""
        removal.volumes_listed(set(), 4 * 10**9)
        row = batch.rows(2)[0]
        assert (row["state"], row["gone_s"], row["volume_gone_s"]) == ("ok", 2.0, 3.0)

    in_loop(check)
