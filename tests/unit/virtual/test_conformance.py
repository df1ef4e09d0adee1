"""One VM's life on the virtual cluster against recordings of KubeVirt's and CDI's own controllers.

Where the two differ is listed in `deviations.py`, step by step; anything else must be equal, in order and
content.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infra import manifests
from infra.cluster.kinds import DATA_VOLUME, EVENT, POD, PVC, VM, VMI
from infra.cluster.port import Cluster, Object, Ref, Scope
from infra.cluster.virtual.description import load_description
from infra.cluster.virtual.faults import FaultPlan
from infra.cluster.virtual.runtime import VirtualCluster
from infra.manifests import Disk, Machine, Mark, Source, golden_data_volume, virtual_machine
from tests.conformance_page import PATH, page
from tests.unit.virtual.deviations import CHAPTERS, LEFT_OUT, MODEL_ONLY, Deviation

DATA = Path(__file__).parents[2] / "data" / "kubevirt"
KINDS = {"VM": VM, "VMI": VMI, "DV": DATA_VOLUME, "PVC": PVC, "Pod": POD}
MARK = Mark("r1", "nonce", "boot", 1, 0)
DISK = Disk(10, "ocs-external-storagecluster-ceph-rbd", "ReadWriteMany", "Block")
DISKLESS = ("stop_and_delete", "unschedulable")
"""Recorded of a VM without a disk."""
OF_DISKS = "DataVolumesReady"
"""A condition that only VMs with disks have; it comes with the first other one and never changes."""
OURS = {"virtscale.io/nonce", "cdi.kubevirt.io/storage.bind.immediate.requested"}
"""Annotations of our manifests, which the recorded VMs did not have."""
TOO_MANY_CORES = 1_000_000
THE_VM = Ref(VM, "ns", "vm1")


class Event(NamedTuple):
    kind: str
    type: str
    object: Object


def recorded(chapter: str) -> list[Event]:
    lines = [json.loads(line) for line in (DATA / f"{chapter}.jsonl").read_text().splitlines()]
    begin = next((i for i, line in enumerate(lines) if line["type"] == "MARK" and line["name"] == "start"), 0)
    events = (line for line in lines[begin:] if line["type"] != "MARK")
    return [Event(line["kind"], line["type"], line["object"]) for line in events]


def recorded_events(chapter: str) -> list[str]:
    lines = (json.loads(line) for line in (DATA / "events.jsonl").read_text().splitlines())
    return sorted(worded(line["kind"], line) for line in lines if line["chapter"] == chapter)


def said(events: list[Object]) -> list[str]:
    """Events in words; several components write them, so their order means nothing."""
    return sorted(worded(event["involvedObject"]["kind"], event) for event in events)


def worded(kind: str, event: Object) -> str:
    text = f"{kind}: {event['type']} {event['reason']}: {event['message']}"
    return plain(text)


def plain(text: str) -> str:
    """Without what differs between two clusters: UIDs, the names of VM, namespaces and source."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"virt-launcher-(vm[-a-z0-9]*?)-[a-z0-9]{5}\b", r"virt-launcher-\1-*", text)
    text = re.sub(r"\bvm(1|2|-unsched|-0000)\b", "vm", text)
    for theirs, ours in (("kv-golden/img-snap", "golden/snap"), ("kv-cdi-vm/", "ns/")):
        text = text.replace(theirs, ours)
    return re.sub(r"\bimg\b", "image", text)


def conditions(events: Iterable[Event], kind: str) -> list[str]:
    """Every condition of a kind's objects, repeated states once."""
    shown = (_conditions(event) for event in events if event.kind == kind)
    return [state for state, _ in groupby(shown)]


def _conditions(event: Event) -> str:
    if event.type == "DELETED":
        return "gone"
    found = event.object.get("status", {}).get("conditions") or ()
    told = (each for each in found if each["type"] != OF_DISKS)
    words = (f"{each['type']}={each['status']}/{each.get('reason', '')}" for each in told)
    return " ".join(sorted(word.rstrip("/") for word in words)) or "none"


def metadata(events: list[Event]) -> Object:
    """Name, owner, and all annotations and finalizers that an object ever had."""
    metas = [event.object["metadata"] for event in events]
    owners = metas[0].get("ownerReferences") or []
    return {
        "name": metas[0]["name"],
        "owner": f"{owners[0]['kind']} {owners[0]['name']}" if owners else "",
        "annotations": {key for meta in metas for key in meta.get("annotations") or ()} - OURS,
        "finalizers": {key for meta in metas for key in meta.get("finalizers") or ()},
    }


def flat(found: Object) -> list[str]:
    """The same, one text each."""
    keys = [f"{what[:-1]} {key}" for what in ("annotations", "finalizers") for key in sorted(found[what])]
    return [plain(f"name {found['name']}"), plain(f"owner {found['owner']}"), *keys]


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


class Lived(NamedTuple):
    """What was seen, and the Events that were made, by chapter."""

    chapters: dict[str, list[Event]]
    events: dict[str, list[Object]]


class Life:
    """One VM's life, what is seen of it by chapter."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.api = cluster.client
        self.events: list[Event] = []
        self.lived = Lived({}, {})
        self._said: list[Object] = []

    async def listen(self) -> None:
        async for batch in self.api.watch(Scope(EVENT, "ns"), ""):
            self._said += [event.object for event in batch.events if event.type == "ADDED"]

    async def watch(self, kind: str) -> None:
        async for batch in self.api.watch(Scope(KINDS[kind], "ns"), ""):
            self.events += [Event(kind, event.type, event.object) for event in batch.events]

    async def chapter(self, name: str, *steps: str, cores: int = 1) -> None:
        """Carry the steps out, each followed by peace."""
        self.events.clear()
        self._said.clear()
        for step in steps:
            if step == "create":
                machine = Machine(cores, 2, DISK)
                await self.api.create(virtual_machine("vm1", "ns", MARK, machine, Source("golden", "source")))
            elif step == "import":
                await self.api.create(golden_data_volume("image", "ns", MARK, "docker://image", DISK))
            elif step == "forget":
                await self.api.delete(Ref(DATA_VOLUME, "ns", "image"))
            elif step == "delete":
                await self.api.delete(THE_VM)
            else:
                await self.api.subresource(THE_VM, step)
            await asyncio.sleep(30)
        self.lived.chapters[name], self.lived.events[name] = list(self.events), list(self._said)


@pytest.fixture(scope="module")
def lived() -> Lived:
    """The chapters of the recordings, lived on the virtual cluster."""
    fast = load_description("fast")
    telling = fast.model_copy(update={"api": fast.api.model_copy(update={"normal_events": True})})
    cluster = VirtualCluster(telling, 1, FaultPlan())
    cluster.open(None)

    async def body() -> Lived:
        life = Life(cluster)
        await golden(life.api)
        watching = [asyncio.ensure_future(each) for each in (*map(life.watch, KINDS), life.listen())]
        await asyncio.sleep(1)
        await life.chapter("imported", "import")
        await life.chapter("", "forget")
        await life.chapter("create_and_start", "create", "start")
        await life.chapter("stop_and_delete", "stop", "delete")
        await life.chapter("", "create", "start")
        await life.chapter("delete_running", "delete")
        await life.chapter("", "create", cores=TOO_MANY_CORES)
        await life.chapter("unschedulable", "start", "stop", "delete")
        for task in watching:
            task.cancel()
        return life.lived

    try:
        return cluster.run(body())
    finally:
        cluster.close()


def without(found: list[str], deviations: list[Deviation], chapter: str, of: str) -> list[str]:
    """`found` with the first of each deviation taken out; each must be there."""
    rest = list(found)
    for each in deviations:
        if (each.chapter, each.of) == (chapter, of):
            for shown in each.shown:
                rest.remove(shown)
    return rest


def assert_alike(real: list[str], model: list[str], chapter: str, of: str) -> None:
    """Equal but for what the tables say."""
    assert without(model, MODEL_ONLY, chapter, of) == without(real, LEFT_OUT, chapter, of)


def compared(*kinds: str) -> list[tuple[str, str]]:
    """Chapter and kind of all that a recording has."""
    disks = {"DV", "PVC"}
    lacks = {"imported": KINDS.keys() - disks} | dict.fromkeys(DISKLESS, disks)
    return [(chapter, kind) for chapter in CHAPTERS for kind in kinds if kind not in lacks.get(chapter, ())]


@pytest.mark.parametrize(("chapter", "kind"), compared(*KINDS))
def test_states_and_their_order_are_those_recorded(lived: Lived, chapter: str, kind: str) -> None:
    assert_alike(states(recorded(chapter), kind), states(lived.chapters[chapter], kind), chapter, kind)


@pytest.mark.parametrize(("chapter", "kind"), compared("VM", "VMI", "DV", "Pod"))
def test_all_conditions_and_their_order_are_those_recorded(lived: Lived, chapter: str, kind: str) -> None:
    real, model = recorded(chapter), lived.chapters[chapter]
    assert_alike(conditions(real, kind), conditions(model, kind), chapter, f"conditions of {kind}")


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_events_and_their_words_are_those_recorded(lived: Lived, chapter: str) -> None:
    assert_alike(recorded_events(chapter), said(lived.events[chapter]), chapter, "events")


@pytest.mark.parametrize("kind", KINDS)
def test_names_owners_annotations_and_finalizers_are_those_recorded(lived: Lived, kind: str) -> None:
    real = json.loads((DATA / "metadata.json").read_text())[kind]
    model = metadata([event for event in lived.chapters["create_and_start"] if event.kind == kind])
    assert_alike(flat(real), flat(model), "create_and_start", f"metadata of {kind}")


def first(events: list[Event], kind: str, **status: Any) -> int:
    """Where the first event of a kind is whose status says so."""
    for place, event in enumerate(events):
        if event.kind == kind and event.object.get("status", {}).items() >= status.items():
            return place
    raise AssertionError(f"no {kind} says {status}")


def gone(events: list[Event], kind: str) -> int:
    return next(place for place, event in enumerate(events) if event[:2] == (kind, "DELETED"))


@pytest.mark.parametrize("life", ["recorded", "lived"])
def test_the_awkward_orders_are_there(life: str, lived: Lived) -> None:
    read = recorded if life == "recorded" else lived.chapters.__getitem__
    start, stop, delete = (read(name) for name in ("create_and_start", "stop_and_delete", "delete_running"))
    assert first(start, "VM", printableStatus="Stopped") < first(start, "DV"), "Stopped is not provisioned"
    assert first(start, "VM", printableStatus="Running") < first(start, "VM", ready=True)
    assert first(start, "VMI", phase="Running") < first(start, "VM", printableStatus="Running")
    assert first(stop, "VM", printableStatus="Stopped", created=True) < gone(stop, "VMI")
    assert gone(stop, "Pod") < gone(stop, "VMI")
    assert gone(delete, "VMI") < gone(delete, "VM") < gone(delete, "DV") < gone(delete, "PVC")


def test_the_clone_type_reaches_the_data_volume_and_its_finalizer_goes(lived: Lived) -> None:
    last = [event.object["metadata"] for event in lived.chapters["create_and_start"] if event.kind == "DV"][
        -1
    ]
    assert last["annotations"]["cdi.kubevirt.io/cloneType"] == "snapshot"
    assert not last.get("finalizers")
    assert last["generation"] == 1


def test_an_instance_grows_in_generation_with_every_write_of_its_status(lived: Lived) -> None:
    metas = [event.object["metadata"] for event in lived.chapters["create_and_start"] if event.kind == "VMI"]
    assert metas[-1]["generation"] >= 5
    assert metas[0]["finalizers"] == [
        "kubevirt.io/virtualMachineControllerFinalize",
        "kubevirt.io/foregroundDeleteVirtualMachine",
    ]


@pytest.mark.parametrize(
    ("chapter", "most"), [("create_and_start", 34), ("stop_and_delete", 16), ("delete_running", 13)]
)
def test_a_life_costs_no_more_events(lived: Lived, chapter: str, most: int) -> None:
    """An event is 35 us, 18,300 times over in a study: think before adding one."""
    assert len(lived.chapters[chapter]) <= most


def test_the_page_says_what_the_table_does() -> None:
    assert PATH.read_text() == page(), "run make docs"
