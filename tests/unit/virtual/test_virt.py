"""virt-controller's one-word status and virt-api's answers, as recorded from KubeVirt (testbed.md B2, B4)."""

import asyncio
from typing import Any

import pytest

from infra.cluster.kinds import DATA_VOLUME, POD, PVC, VM, VMI
from infra.cluster.port import Cluster, Object, Ref, Scope
from infra.cluster.virtual.controllers import virt_api
from infra.cluster.virtual.controllers.printable_status import printable_status, wanted_status
from infra.cluster.virtual.runtime import VirtualCluster
from infra.errors import AlreadyExists, Conflict, NotFound
from tests.unit.virtual.conftest import OpenCluster, manifest

GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
FAILED = {"status": {"phase": "Failed"}, **manifest(DATA_VOLUME)}
ERRS = {
    "status": {
        "phase": "CloneScheduled",
        "conditions": [{"type": "Running", "status": "False", "reason": "Error"}],
    }
}
COPYING = {"status": {"phase": "CloneInProgress"}}
POPULATED = {"status": {"phase": "Succeeded"}}
WAITING = {"status": {"phase": "PendingPopulation"}}


def vm(strategy: str = "Always", *, going: bool = False, **status: Any) -> Object:
    meta = {"generation": 2, **(GOING if going else {})}
    return manifest(VM, "vm1", meta=meta, spec={"runStrategy": strategy}, status=status)


def vmi(phase: str, *conditions: Object, going: bool = False) -> Object:
    meta = GOING if going else {}
    return manifest(VMI, "vm1", meta=meta, spec={}, status={"phase": phase, "conditions": list(conditions)})


@pytest.mark.parametrize(
    ("status", "machine", "instance", "volumes"),
    [
        ("Terminating", vm(going=True), vmi("Running", going=True), [POPULATED]),
        ("Terminating", vm(going=True), vmi("Succeeded", going=True), [FAILED]),
        ("Stopped", vm("Halted", going=True), None, [POPULATED]),
        ("Stopping", vm("Halted"), vmi("Running", going=True), [POPULATED]),
        ("Stopping", vm("Halted"), vmi("Scheduling", UNSCHEDULABLE, going=True), []),
        ("ErrorUnschedulable", vm("Halted"), vmi("Failed", UNSCHEDULABLE, going=True), []),
        ("Stopped", vm("Halted"), vmi("Succeeded", going=True), [POPULATED]),
        ("Running", vm(), vmi("Running"), [POPULATED]),
        ("Running", vm(), vmi("Running", UNSCHEDULABLE), [FAILED]),
        ("DataVolumeError", vm("Halted"), None, [POPULATED, FAILED]),
        ("DataVolumeError", vm("Halted"), None, [ERRS]),
        ("DataVolumeError", vm(), vmi("Scheduling", UNSCHEDULABLE), [ERRS, COPYING]),
        ("ErrorUnschedulable", vm(), vmi("Scheduling", UNSCHEDULABLE), [COPYING]),
        ("Provisioning", vm("Halted"), None, [COPYING, POPULATED]),
        ("Provisioning", vm(), None, [COPYING]),
        ("Provisioning", vm("Halted"), None, [None]),
        ("Starting", vm(), None, [POPULATED]),
        ("Starting", vm(), vmi("Pending"), [POPULATED]),
        ("Starting", vm(), vmi("Scheduled"), [POPULATED]),
        ("Stopped", vm("Halted"), None, [POPULATED]),
        ("Stopped", vm("Halted"), None, [WAITING]),
        ("Stopped", vm("Halted"), vmi("Failed"), []),
    ],
)
def test_the_first_status_that_fits_is_shown(
    status: str, machine: Object, instance: Object | None, volumes: list[Object | None]
) -> None:
    assert printable_status(machine, instance, volumes) == status


def test_what_the_real_one_leaves_out_is_left_out() -> None:
    before = wanted_status(vm("Halted"), None, [])
    assert (before["created"], before["ready"]) == (None, None)
    assert before.keys() == {"printableStatus", "created", "ready", "conditions"}


def test_running_comes_before_ready() -> None:
    not_yet = {"type": "Ready", "status": "False", "reason": "GuestNotRunning"}
    status = wanted_status(vm(), vmi("Running", not_yet), [])
    assert (status["printableStatus"], status["created"], status["ready"]) == ("Running", True, None)
    ready = wanted_status(vm(), vmi("Running", {"type": "Ready", "status": "True"}), [])
    assert ready["ready"] is True


def test_conditions_stay_on_a_stopped_vm() -> None:
    migratable = {"type": "LiveMigratable", "status": "True"}
    running = wanted_status(vm(), vmi("Running", migratable), [])
    stopped = wanted_status(vm("Halted", conditions=running["conditions"]), None, [])
    assert stopped["conditions"] == [
        {"type": "Ready", "status": "False", "reason": "VMINotExists"},
        migratable,
    ]


def test_a_deleted_vm_keeps_its_observed_generation() -> None:
    status = wanted_status(vm(going=True), vmi("Running"), [])
    assert status["desiredGeneration"] == 2
    assert "observedGeneration" not in status


async def halted(cluster: VirtualCluster) -> Cluster:
    """A namespace and the halted VM `vm1`, without a disk of its own."""
    api = cluster.client
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    spec = {"runStrategy": "Halted", "template": {"spec": {"domain": {}}}}
    await api.create(manifest(VM, "vm1", spec=spec))
    await asyncio.sleep(10)
    return api


THE_VM = Ref(VM, "ns", "vm1")
REFUSED = r'^Operation cannot be fulfilled on virtualmachine\.kubevirt\.io "vm1": '


async def refused(api: Cluster, verb: str, text: str) -> None:
    with pytest.raises(Conflict, match=f"{REFUSED}{text}$"):
        await api.subresource(THE_VM, verb)


def test_start_and_stop_answer_as_virt_api_does(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()

    async def body() -> None:
        api = await halted(cluster)
        await refused(api, "stop", "VM is not running")
        await api.subresource(THE_VM, "start", {"dryRun": ["All"]})
        assert (await api.get(THE_VM))["metadata"]["generation"] == 1
        await api.subresource(THE_VM, "start")
        started = await api.get(THE_VM)
        assert (started["spec"]["runStrategy"], started["metadata"]["generation"]) == ("Always", 2)
        await refused(api, "start", "Always does not support manual start requests")
        await asyncio.sleep(0.2)
        await refused(api, "start", "VM is already running")
        await asyncio.sleep(30)
        await refused(api, "start", "VM is already running")
        await api.subresource(THE_VM, "stop")
        assert (await api.get(THE_VM))["spec"]["runStrategy"] == "Halted"
        await refused(api, "stop", "Halted only supports manual stop requests with a shorter graceperiod")
        await refused(api, "start", "VM is already running")
        await asyncio.sleep(30)
        await api.subresource(THE_VM, "start")
        await asyncio.sleep(30)
        assert (await api.get(THE_VM))["status"]["printableStatus"] == "Running"

    cluster.run(body())


def test_a_vm_that_is_absent_is_named_in_the_singular(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()

    async def body() -> None:
        api = await halted(cluster)
        for verb in ("start", "stop"):
            with pytest.raises(NotFound, match=r'^virtualmachine\.kubevirt\.io "absent" not found$'):
                await api.subresource(Ref(VM, "ns", "absent"), verb)
        with pytest.raises(NotFound, match="could not find the requested resource"):
            await api.subresource(THE_VM, "restart")

    cluster.run(body())


def test_a_finished_instance_may_be_started_over_and_the_new_one_waits(open_cluster: OpenCluster) -> None:
    class Answers:
        """A cluster with a halted VM and a finished instance."""

        patched: list[Object] = []  # noqa: RUF012

        async def get(self, ref: Ref) -> Object:
            return vm("Halted") if ref.kind is VM else vmi("Succeeded", going=True)

        async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
            self.patched.append(merge)
            return merge

    api: Any = Answers()
    asyncio.run(virt_api.start(api, "ns", "vm1", {}))
    assert api.patched == [{"spec": {"runStrategy": "Always"}}]


def test_a_running_vm_that_is_deleted_ends_its_instance_first(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()

    async def body() -> None:
        api = await halted(cluster)
        await api.subresource(THE_VM, "start")
        await asyncio.sleep(30)
        await api.delete(THE_VM)
        with pytest.raises(AlreadyExists, match="object is being deleted"):
            await api.create(manifest(VM, "vm1", spec={}))
        await asyncio.sleep(0.1)
        assert (await api.get(THE_VM))["status"]["printableStatus"] == "Terminating"
        await asyncio.sleep(30)
        for kind in (VM, VMI):
            with pytest.raises(NotFound):
                await api.get(Ref(kind, "ns", "vm1"))

    cluster.run(body())


def test_an_instance_deleted_before_its_guest_ran_ends_failed(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()
    phases: list[str] = []

    async def watch() -> None:
        async for batch in cluster.client.watch(Scope(VMI), ""):
            phases.extend(event.object["status"]["phase"] for event in batch.events)

    async def body() -> None:
        api = await halted(cluster)
        watching = asyncio.ensure_future(watch())
        await api.subresource(THE_VM, "start")
        await asyncio.sleep(0.1)
        await api.subresource(THE_VM, "stop")
        await asyncio.sleep(30)
        watching.cancel()
        assert (await api.get(THE_VM))["status"]["printableStatus"] == "Stopped"

    cluster.run(body())
    assert "Running" not in phases
    assert phases[-1] == "Failed"


def test_an_instance_whose_claim_is_absent_waits_for_it_without_a_pod(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()
    text = "PVC ns/absent does not exist, waiting for it to appear"

    async def body() -> None:
        api = await halted(cluster)
        volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "absent"}}]
        await api.create(manifest(VMI, "alone", spec={"domain": {}, "volumes": volumes}))
        await asyncio.sleep(30)
        status = (await api.get(Ref(VMI, "ns", "alone")))["status"]
        said = {found["type"]: (found["reason"], found["message"]) for found in status["conditions"]}
        # cases/kubevirt/faults.jsonl, vm-nopvc
        assert status["phase"] == "Pending"
        assert said == {
            "Ready": ("PodNotExists", "virt-launcher pod has not yet been scheduled"),
            "PodScheduled": ("Unschedulable", text),
            "Synchronized": ("FailedPvcNotFound", text),
        }
        assert (await api.list(Scope(POD, "ns"))).items == []
        await api.create(manifest(PVC, "absent", spec={"resources": {"requests": {"storage": "1Mi"}}}))
        await asyncio.sleep(30)
        assert len((await api.list(Scope(POD, "ns"))).items) == 1

    cluster.run(body())
