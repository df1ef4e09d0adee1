"""What really happened on a virtual cluster, from its store's log and machines, beside what was recorded."""

from collections.abc import Callable, Iterator
from typing import Any

from infra.cluster.kinds import DATA_VOLUME, POD, PV, PVC, VM, VMI, Kind
from infra.cluster.port import Object
from infra.cluster.virtual.loop import EPOCH
from infra.cluster.virtual.machines import Machine
from infra.world import World
from tasks.golden_image import CLONE_TYPE
from tests.unit.stages.conftest import rows

Facts = dict[str, Any]
"""What is true of an object, as far as a step depends on it."""
Change = tuple[int, Facts | None]
"""From when on (ns) something is true of an object; None: it is gone."""
Holds = Callable[[Facts | None], bool]
TABLE_OF = {"deploy": "vm_deploys", "delete": "vm_deletes", "boot": "vm_boots", "stop": "vm_stops"}
ROUNDING_S = 2e-6
"""A batch's release is stored in whole microseconds."""


class Truth:
    """What the store published that a step depends on, by kind and name, and when each sshd came up."""

    def __init__(self, world: World) -> None:
        inside: Any = world.runtime
        self.guest = inside.description.guest
        self.log: dict[tuple[Kind, str], list[Change]] = {}
        self.sshd: dict[str, list[int]] = {}
        self.pods: dict[str, list[str]] = {}
        self._listen(inside)

    def _listen(self, inside: Any) -> None:
        publish, tell, loop = inside.server.store._publish, inside.plane.machines.on_sshd, inside.loop

        def published(kind: Kind, what: str, obj: Object, before: Object | None) -> None:
            if kind in FACTS:
                self._note(kind, loop.now_ns, obj, None if what == "DELETED" else FACTS[kind](obj))
            publish(kind, what, obj, before)

        def up(machine: Machine) -> None:
            self.sshd.setdefault(machine.vm, []).append(machine.sshd_ns or 0)
            tell(machine)

        inside.server.store._publish, inside.plane.machines.on_sshd = published, up

    def _note(self, kind: Kind, ns: int, obj: Object, facts: Facts | None) -> None:
        name = obj["metadata"]["name"]
        log = self.log.setdefault((kind, name), [])
        if not log and kind is POD:
            self.pods.setdefault(_owner(obj), []).append(name)
        if not log or log[-1][1] != facts:
            log.append((ns, facts))

    def first(self, kind: Kind, name: str, since_ns: int, holds: Holds) -> int | None:
        """When something first held of an object, not before `since_ns`."""
        log = self.log.get((kind, name), [])
        before = [facts for ns, facts in log if ns <= since_ns]
        if before and holds(before[-1]):
            return since_ns
        return next((ns for ns, facts in log if ns > since_ns and holds(facts)), None)

    def together(self, since_ns: int, *facts: tuple[Kind, str, Holds]) -> int | None:
        """When all facts first held at once."""
        moments = {since_ns, *(ns for kind, name, _ in facts for ns, _ in self.log.get((kind, name), []))}
        return next(
            (ns for ns in sorted(moments) if ns >= since_ns and all(self._at(ns, *f) for f in facts)), None
        )

    def _at(self, ns: int, kind: Kind, name: str, holds: Holds) -> bool:
        before = [facts for at, facts in self.log.get((kind, name), []) if at <= ns]
        return holds(before[-1] if before else None)

    def of(self, stage: str, vm: str, released_ns: int, acknowledged_ns: int | None) -> dict[str, int | None]:
        """Every step of a VM, ns."""
        match stage:
            case "deploy":
                return self._deploy(vm, released_ns, acknowledged_ns)
            case "delete":
                return self._delete(vm, released_ns)
            case "stop":
                return {"halted": self.together(released_ns, (VM, vm, halted), (VMI, vm, deleted))}
        return self._boot(vm, released_ns)

    def _deploy(self, vm: str, released_ns: int, acknowledged_ns: int | None) -> dict[str, int | None]:
        disk = f"{vm}-root"
        bound = self.first(PVC, disk, released_ns, phase("Bound"))
        known = None if bound is None or acknowledged_ns is None else max(bound, acknowledged_ns)
        facts = (VM, vm, stopped), (DATA_VOLUME, disk, phase("Succeeded")), (PVC, disk, phase("Bound"))
        return {
            "pvc_bound": known,
            "datavolume_succeeded": self.first(DATA_VOLUME, disk, released_ns, phase("Succeeded")),
            "deployed": self.together(released_ns, *facts),
        }

    def _delete(self, vm: str, released_ns: int) -> dict[str, int | None]:
        disk = f"{vm}-root"
        whole = (VM, vm), (DATA_VOLUME, disk), (PVC, disk)
        gone = [self.first(kind, name, released_ns, deleted) for kind, name in whole]
        volume = self.volume(disk)
        last = max((ns for ns in gone if ns is not None), default=None)
        went = self.first(PV, volume, released_ns, deleted) if volume else last
        return {"gone": last, "volume_gone": went}

    def volume(self, disk: str) -> str | None:
        """The volume that a claim was bound to last."""
        names = [facts["volume"] for _, facts in self.log.get((PVC, disk), []) if facts]
        return next((name for name in reversed(names) if name), None)

    def _boot(self, vm: str, released_ns: int) -> dict[str, int | None]:
        pods = [pod for pod in self.pods.get(vm, []) if self.log[POD, pod][-1][0] > released_ns]
        placed = [self.first(POD, pod, released_ns, on_a_node) for pod in pods]
        sshd = next((ns for ns in self.sshd.get(vm, []) if ns >= released_ns), None)
        banner = None if sshd is None else sshd + round(self.guest.banner_after_s * 1e9)
        return {
            "vmi_created": self.first(VMI, vm, released_ns, lambda facts: facts is not None),
            "pod_scheduled": min((ns for ns in placed if ns is not None), default=None),
            "vmi_scheduled": self.first(VMI, vm, released_ns, phase("Scheduled", "Running")),
            "running": self.first(VMI, vm, released_ns, phase("Running")),
            "ip_known": self.first(VMI, vm, released_ns, has_address),
            "tcp_open": sshd,
            "ssh_banner": banner,
            "ssh_ready": None if banner is None else banner + round(self.guest.command_after_s * 1e9),
        }


def _owner(obj: Object) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{"name": ""}]
    return str(owners[0]["name"])


def _status(obj: Object, *names: str) -> Facts:
    status = obj.get("status") or {}
    return {name: status.get(name) for name in names}


def _of_instance(obj: Object) -> Facts:
    interfaces = (obj.get("status") or {}).get("interfaces") or [{}]
    return {**_status(obj, "phase"), "address": bool(interfaces[0].get("ipAddress"))}


FACTS: dict[Kind, Callable[[Object], Facts]] = {
    VM: lambda obj: {**_status(obj, "printableStatus"), "strategy": obj["spec"].get("runStrategy")},
    VMI: _of_instance,
    POD: lambda obj: {"node": obj["spec"].get("nodeName")},
    DATA_VOLUME: lambda obj: _status(obj, "phase"),
    PVC: lambda obj: {
        **_status(obj, "phase"),
        "volume": obj["spec"].get("volumeName"),
        "clone": (obj["metadata"].get("annotations") or {}).get(CLONE_TYPE),
    },
    PV: lambda obj: {},
}


def phase(*names: str) -> Holds:
    return lambda facts: facts is not None and facts["phase"] in names


def deleted(facts: Facts | None) -> bool:
    return facts is None


def stopped(facts: Facts | None) -> bool:
    return facts is not None and facts["printableStatus"] == "Stopped"


def halted(facts: Facts | None) -> bool:
    return facts is not None and stopped(facts) and facts["strategy"] == "Halted"


def on_a_node(facts: Facts | None) -> bool:
    return facts is not None and bool(facts["node"])


def has_address(facts: Facts | None) -> bool:
    return facts is not None and facts["address"]


class Checked(dict[str, list[float]]):
    """Per step (`stage step`) the error bounds of its records; `wrong` lists what lies outside its bound."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []


def check(world: World, truth: Truth) -> Checked:
    """Compare all records of the run with the truth."""
    checked = Checked()
    for batch in rows(world, "batches"):
        vms = [
            vm
            for vm in rows(world, TABLE_OF[batch["stage"]])
            if (vm["batch"], vm["repeat"]) == (batch["batch"], batch["repeat"])
        ]
        compare(checked, truth, batch, vms)
    return checked


def compare(checked: Checked, truth: Truth, batch: dict[str, Any], vms: list[dict[str, Any]]) -> None:
    """Compare the records of one batch with the truth."""
    stage, released_ns = batch["stage"], released_at_ns(batch)
    for vm in vms:
        _compare(checked, truth, (stage, released_ns), vm)


def released_at_ns(batch: dict[str, Any]) -> int:
    """When a batch was released, on the virtual cluster's clock."""
    since_start_s: float = (batch["released_at"] - EPOCH).total_seconds()
    return round(since_start_s * 1e9)


def _compare(checked: Checked, truth: Truth, batch: tuple[str, int], vm: dict[str, Any]) -> None:
    stage, released_ns = batch
    at = None if vm.get("acknowledged_s") is None else released_ns + round(vm["acknowledged_s"] * 1e9)
    for step, true_ns in truth.of(stage, vm["vm"], released_ns, at).items():
        recorded, bound = vm[f"{step}_s"], vm[f"{step}_error_s"]
        if recorded is None:
            continue
        where = f"{stage} {vm['batch']} {vm['vm']} {step}: recorded {recorded}"
        if true_ns is None or bound is None:
            checked.wrong.append(f"{where} ± {bound}, true {true_ns}")
            continue
        true = (true_ns - released_ns) / 1e9
        checked.setdefault(f"{stage} {step}", []).append(bound)
        if not -ROUNDING_S <= recorded - true <= bound + ROUNDING_S:
            checked.wrong.append(f"{where} ± {bound}, true {true}")


def worst(checked: Checked) -> Iterator[tuple[str, float, float]]:
    """Step, p99 and largest of its bounds."""
    for step, bounds in checked.items():
        ranked = sorted(bounds)
        yield step, ranked[-(-99 * len(ranked) // 100) - 1], ranked[-1]
