"""One VM's life on the virtual cluster against recordings of KubeVirt's and CDI's own controllers.

What the real ones show and the model leaves out is listed in LEFT_OUT, state by state, and explained in
docs/concepts/virtual-cluster.md; anything else must be equal, in order and content.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infra import manifests
from infra.cluster.kinds import DATA_VOLUME, POD, PVC, VM, VMI
from infra.cluster.port import Cluster, Object, Ref, Scope
from infra.cluster.virtual.description import load_description
from infra.cluster.virtual.faults import FaultPlan
from infra.cluster.virtual.runtime import VirtualCluster
from infra.manifests import Disk, Machine, Mark, Source, virtual_machine

DATA = Path(__file__).parents[2] / "data" / "kubevirt"
KINDS = {"VM": VM, "VMI": VMI, "DV": DATA_VOLUME, "PVC": PVC, "Pod": POD}
MARK = Mark("r1", "nonce", "boot", 1, 0)
DISK = Disk(10, "ocs-external-storagecluster-ceph-rbd", "ReadWriteMany", "Block")
THE_VM = Ref(VM, "ns", "vm1")


class Event(NamedTuple):
    kind: str
    type: str
    object: Object


def recorded(name: str) -> list[Event]:
    lines = (json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines())
    return [Event(line["kind"], line["type"], line["object"]) for line in lines]


def condition(obj: Object, kind: str) -> str:
    for each in obj.get("status", {}).get("conditions") or ():
        if each["type"] == kind:
            return str(each.get("reason") or each["status"])
    return "-"


def machine_state(obj: Object) -> str:
    status = obj.get("status", {})
    words = [status.get("printableStatus", "-"), condition(obj, "Ready")]
    words += [word for word in ("created", "ready") if status.get(word)]
    words += [f"gen {obj['metadata']['generation']}"]
    if "observedGeneration" in status:
        words += [f"observed {status['observedGeneration']}", f"as {status['runStrategy']}"]
    return " ".join(words)


def instance_state(obj: Object) -> str:
    finalizers = len(obj["metadata"].get("finalizers") or ())
    return f"{obj['status']['phase']} {condition(obj, 'Ready')} held by {finalizers}"


def volume_state(obj: Object) -> str:
    held = "held" if obj["metadata"].get("finalizers") else "free"
    said = [condition(obj, kind) for kind in ("Bound", "Ready", "Running")]
    return f"{obj.get('status', {}).get('phase', '-')} {' '.join(said)} {held}"


def claim_state(obj: Object) -> str:
    meta = obj["metadata"]
    phase = (meta.get("annotations") or {}).get("cdi.kubevirt.io/clonePhase", "-")
    return f"{obj['status']['phase']} {phase} {'held' if meta.get('finalizers') else 'free'}"


def pod_state(obj: Object) -> str:
    return f"{obj['status']['phase']} {condition(obj, 'Ready')}"


STATES = {
    "VM": machine_state,
    "VMI": instance_state,
    "DV": volume_state,
    "PVC": claim_state,
    "Pod": pod_state,
}


def states(events: Iterable[Event], kind: str) -> list[str]:
    """What an observer of one kind sees, repeated states once."""
    return [state for state, _ in groupby(_states(events, kind))]


def _states(events: Iterable[Event], kind: str) -> Iterator[str]:
    for event in events:
        if event.kind == kind:
            going = " going" if "deletionTimestamp" in event.object["metadata"] else ""
            yield "gone" if event.type == "DELETED" else STATES[kind](event.object) + going


async def golden(api: Cluster) -> None:
    for name in ("golden", "ns"):
        await api.create(manifests.namespace(name, MARK))
    await api.create(manifests.golden_data_volume("image", "golden", MARK, "docker://image", DISK))
    await asyncio.sleep(30)
    snapshot_class = "ocs-external-storagecluster-rbdplugin-snapclass"
    await api.create(manifests.volume_snapshot("snap", "golden", MARK, snapshot_class, "image"))
    await asyncio.sleep(10)
    await api.create(manifests.data_source("source", "golden", MARK, "snap"))
    await asyncio.sleep(10)


class Life:
    """One VM's life, its events by chapter."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.api = cluster.client
        self.events: list[Event] = []

    async def watch(self, kind: str) -> None:
        async for batch in self.api.watch(Scope(KINDS[kind], "ns"), ""):
            self.events += [Event(kind, event.type, event.object) for event in batch.events]

    async def chapter(self, *steps: str) -> list[Event]:
        """Carry the steps out, each followed by peace."""
        self.events.clear()
        for step in steps:
            if step == "create":
                machine = Machine(1, 2, DISK)
                await self.api.create(virtual_machine("vm1", "ns", MARK, machine, Source("golden", "source")))
            elif step == "delete":
                await self.api.delete(THE_VM)
            else:
                await self.api.subresource(THE_VM, step)
            await asyncio.sleep(30)
        return list(self.events)


@pytest.fixture(scope="module")
def lived() -> dict[str, list[Event]]:
    """The chapters of the recordings, lived on the virtual cluster."""
    cluster = VirtualCluster(load_description("fast"), 1, FaultPlan())
    cluster.open(None)

    async def body() -> dict[str, list[Event]]:
        life = Life(cluster)
        await golden(life.api)
        watching = [asyncio.ensure_future(life.watch(kind)) for kind in KINDS]
        await asyncio.sleep(1)
        chapters = {"create_and_start": await life.chapter("create", "start")}
        chapters["stop_and_delete"] = await life.chapter("stop", "delete")
        await life.chapter("create", "start")
        chapters["delete_running"] = await life.chapter("delete")
        for task in watching:
            task.cancel()
        return chapters

    try:
        return cluster.run(body())
    finally:
        cluster.close()


LEFT_OUT: dict[tuple[str, str], list[str]] = {
    # the write of annotations and finalizer carries no condition: one status write less
    ("create_and_start", "VM"): ["Stopped VMINotExists gen 1"],
    # phases that last one write of CDI's; finalizer and token come together
    ("create_and_start", "DV"): [
        "Pending NotFound False False free",
        "Pending NotFound False False held",
        "CloneScheduled Pending False Pending held",
        "Succeeded Pending True Completed held",
        "Succeeded Pending True Completed free",
    ],
    ("create_and_start", "PVC"): [
        "Pending Pending free",
        "Pending Pending held",
        "Pending Succeeded held",
        "Bound Succeeded held",
    ],
    # a kubelet's writes between bound and ready, and between guest and containers ended
    ("create_and_start", "Pod"): ["Pending False"],
    ("stop_and_delete", "Pod"): ["Succeeded False going"],
    ("delete_running", "Pod"): ["Succeeded False going"],
    # "pod is terminating" is written with the guest's end, not before
    ("stop_and_delete", "VM"): ["Stopping PodTerminating created gen 3 observed 3 as Halted"],
    ("stop_and_delete", "VMI"): ["Running True held by 2", "Running PodTerminating held by 2 going"],
    ("delete_running", "VMI"): ["Running PodTerminating held by 2 going"],
}
"""States of the recordings that the model does not show: each is a write that nothing waits for."""

OTHER_RECORDINGS: dict[tuple[str, str], list[str]] = {
    ("create_and_start", "VM"): ["Starting VMINotExists gen 2"],
    ("create_and_start", "DV"): ["- - - - held", "Succeeded Bound True Completed held"],
    ("create_and_start", "PVC"): ["Bound Rebind held"],
    ("stop_and_delete", "DV"): ["gone"],
    ("stop_and_delete", "PVC"): ["gone"],
}
"""States of the model that this recording lacks: another recording, or another VM's, shows them."""


def without(found: list[str], left_out: list[str]) -> list[str]:
    """`found` with the first of each of these taken out; each must be there."""
    rest = list(found)
    for state in left_out:
        rest.remove(state)
    return rest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chapter", ["create_and_start", "stop_and_delete", "delete_running"])
def test_states_and_their_order_are_those_recorded(
    lived: dict[str, list[Event]], chapter: str, kind: str
) -> None:
    real = without(states(recorded(chapter), kind), LEFT_OUT.get((chapter, kind), []))
    model = without(states(lived[chapter], kind), OTHER_RECORDINGS.get((chapter, kind), []))
    assert model == real


def first(events: list[Event], kind: str, **status: Any) -> int:
    """Where the first event of a kind is whose status says so."""
    for place, event in enumerate(events):
        if event.kind == kind and event.object.get("status", {}).items() >= status.items():
            return place
    raise AssertionError(f"no {kind} says {status}")


def gone(events: list[Event], kind: str) -> int:
    return next(place for place, event in enumerate(events) if event[:2] == (kind, "DELETED"))


@pytest.mark.parametrize("life", ["recorded", "lived"])
def test_the_awkward_orders_are_there(life: str, lived: dict[str, list[Event]]) -> None:
    read = recorded if life == "recorded" else lived.__getitem__
    start, stop, delete = (read(name) for name in ("create_and_start", "stop_and_delete", "delete_running"))
    assert first(start, "VM", printableStatus="Stopped") < first(start, "DV"), "Stopped is not provisioned"
    assert first(start, "VM", printableStatus="Running") < first(start, "VM", ready=True)
    assert first(start, "VMI", phase="Running") < first(start, "VM", printableStatus="Running")
    assert first(stop, "VM", printableStatus="Stopped", created=True) < gone(stop, "VMI")
    assert gone(stop, "Pod") < gone(stop, "VMI")
    assert gone(delete, "VMI") < gone(delete, "VM") < gone(delete, "DV") < gone(delete, "PVC")


def test_the_clone_type_reaches_the_data_volume_and_its_finalizer_goes(lived: dict[str, list[Event]]) -> None:
    last = [event.object["metadata"] for event in lived["create_and_start"] if event.kind == "DV"][-1]
    assert last["annotations"]["cdi.kubevirt.io/cloneType"] == "snapshot"
    assert not last.get("finalizers")
    assert last["generation"] == 1


def test_an_instance_grows_in_generation_with_every_write_of_its_status(
    lived: dict[str, list[Event]],
) -> None:
    metas = [event.object["metadata"] for event in lived["create_and_start"] if event.kind == "VMI"]
    assert metas[-1]["generation"] >= 5
    assert metas[0]["finalizers"] == [
        "kubevirt.io/virtualMachineControllerFinalize",
        "kubevirt.io/foregroundDeleteVirtualMachine",
    ]


@pytest.mark.parametrize(
    ("chapter", "most"), [("create_and_start", 34), ("stop_and_delete", 16), ("delete_running", 13)]
)
def test_a_life_costs_no_more_events(lived: dict[str, list[Event]], chapter: str, most: int) -> None:
    """An event is 35 us, 18,300 times over in a study: think before adding one."""
    assert len(lived[chapter]) <= most
