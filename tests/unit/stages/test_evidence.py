"""What is kept of VMs that are not ok, and what the cluster tells of itself beside a batch."""

import json

from tasks import evidence
from tasks.boot_storm import boot_batch
from tasks.deploy import deploy_batch
from tasks.journal import Journal
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

NEVER_BOOT = '[[fault]]\nkind = "never-boots"\nvms = 12\nstage = "boot"\n'
STORM = profile_of(boot={"batches": [12], "limit_s": 600})
SECOND = 10**9


def test_the_objects_of_the_first_vms_that_are_not_ok_are_kept_without_secrets(
    open_virtual: OpenWorld,
) -> None:
    with open_virtual(NEVER_BOOT) as world:
        world.run(boot_batch(world, STORM, 12))
        kept, nonce = rows(world, "evidence"), world.nonce
    assert len({row["vm"] for row in kept}) == evidence.KEPT
    assert {(row["stage"], row["batch"]) for row in kept} == {("boot", 12)}
    first = [row for row in kept if row["vm"] == kept[0]["vm"]]
    assert [row["kind"] for row in first] == [
        "VirtualMachine", "VirtualMachineInstance", "DataVolume", "PersistentVolumeClaim", "Pod",
    ]  # fmt: skip
    assert json.loads(first[1]["document"])["status"]["conditions"]
    assert not any(nonce in row["document"] for row in kept)


def test_a_document_that_is_cut_says_how_much_is_missing() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "launcher"}, "log": "x" * evidence.LONGEST}
    whole = json.dumps(pod, indent=1, sort_keys=True)
    cut = evidence.document_of(pod)["document"]
    missing = len(whole) - evidence.LONGEST
    assert cut == f"{whole[: evidence.LONGEST]}\n... cut here: {missing} characters are missing"
    assert evidence.document_of({**pod, "log": ""})["document"].endswith("}")


def test_nothing_is_kept_of_vms_that_are_ok(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(deploy_batch(world, profile_of(), 2))
        assert rows(world, "evidence") == []


def test_aborts_of_the_restore_lock_are_booked_when_they_happen(open_virtual: OpenWorld) -> None:
    profile = profile_of(deploy={"batches": [40]})
    with open_virtual() as world:
        world.run(deploy_batch(world, profile, 40))
        seconds = [row for row in rows(world, "observer") if row["stage"] == "deploy"]
        batch = rows(world, "batches")[0]
    aborts = {row["second"]: row["lock_aborts"] for row in seconds if row["lock_aborts"]}
    assert len(aborts) > 1
    assert max(aborts) < batch["end_to_end_s"]
    assert max(aborts.values()) == aborts[min(aborts)]


def test_a_cluster_that_tells_nothing_of_itself_has_no_zeros() -> None:
    silent, telling = Journal(released_ns=SECOND), Journal(released_ns=SECOND)
    silent.told(None)
    telling.told([("lock_aborts", 2 * SECOND, 1), ("client_throttled_s", 2 * SECOND, 0.5)])
    for journal in (silent, telling):
        journal.count("http_429", 2 * SECOND)
    (quiet,), (loud,) = silent.rows("deploy", 1), telling.rows("deploy", 1)
    assert (quiet["lock_aborts"], quiet["client_throttled_s"]) == (None, None)
    assert (loud["lock_aborts"], loud["client_throttled_s"]) == (1, 0.5)
