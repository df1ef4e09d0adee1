"""What really happened on a virtual cluster, from its store's log and machines, beside what was recorded."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from infra.cluster.kinds import DATA_VOLUME, POD, PV, PVC, VM, VMI, Kind
from infra.cluster.port import Object
from infra.cluster.virtual.loop import EPOCH
from infra.cluster.virtual.machines import Machine
from infra.world import World
from tests.unit.stages.conftest import rows

Change = tuple[int, str, Object]
TABLE_OF = {"deploy": "vm_deploys", "delete": "vm_deletes", "boot": "vm_boots", "stop": "vm_stops"}
ROUNDING_S = 2e-6
"""A batch's release is stored in whole microseconds."""


class Truth:
    """Everything that the store published, by kind and name, and when each guest's sshd came up."""

    def __init__(self, world: World) -> None:
        inside: Any = world.runtime
        self.guest = inside.description.guest
        self.log: dict[tuple[Kind, str], list[Change]] = {}
        self.sshd: dict[str, list[int]] = {}
        self._listen(inside)

    def _listen(self, inside: Any) -> None:
        publish, tell, loop = inside.server.store._publish, inside.plane.machines.on_sshd, inside.loop

        def published(kind: Kind, what: str, obj: Object, before: Object | None) -> None:
            self.log.setdefault((kind, obj["metadata"]["name"]), []).append((loop.now_ns, what, obj))
            publish(kind, what, obj, before)

        def up(machine: Machine) -> None:
            self.sshd.setdefault(machine.vm, []).append(machine.sshd_ns or 0)
            tell(machine)

        inside.server.store._publish, inside.plane.machines.on_sshd = published, up

    def first(self, kind: Kind, name: str, since_ns: int, holds: Callable[[str, Object], bool]) -> int | None:
        """When something first held of an object, not before `since_ns`."""
        log = self.log.get((kind, name), [])
        before = [change for change in log if change[0] <= since_ns]
        if before and holds(before[-1][1], before[-1][2]):
            return since_ns
        return next((ns for ns, what, obj in log if ns > since_ns and holds(what, obj)), None)

    def together(self, since_ns: int, *facts: tuple[Kind, str, Callable[[str, Object], bool]]) -> int | None:
        """When all facts first held at once."""
        moments = sorted(
            {since_ns, *(ns for kind, name, _ in facts for ns, _, _ in self.log.get((kind, name), []))}
        )
        return next((ns for ns in moments if ns >= since_ns and all(self._at(ns, *f) for f in facts)), None)

    def _at(self, ns: int, kind: Kind, name: str, holds: Callable[[str, Object], bool]) -> bool:
        before = [change for change in self.log.get((kind, name), []) if change[0] <= ns]
        return holds(before[-1][1], before[-1][2]) if before else holds("DELETED", {})

    def of(self, stage: str, vm: str, released_ns: int, acknowledged_ns: int | None) -> dict[str, int | None]:
        """Every step of a VM, ns."""
        disk = f"{vm}-root"
        match stage:
            case "deploy":
                bound = self.first(PVC, disk, released_ns, phase("Bound"))
                known = None if bound is None or acknowledged_ns is None else max(bound, acknowledged_ns)
                facts = (
                    (VM, vm, stopped),
                    (DATA_VOLUME, disk, phase("Succeeded")),
                    (PVC, disk, phase("Bound")),
                )
                return {
                    "pvc_bound": known,
                    "datavolume_succeeded": self.first(DATA_VOLUME, disk, released_ns, phase("Succeeded")),
                    "deployed": self.together(released_ns, *facts),
                }
            case "delete":
                gone = [
                    self.first(k, n, released_ns, deleted)
                    for k, n in ((VM, vm), (DATA_VOLUME, disk), (PVC, disk))
                ]
                volume = self._volume(disk)
                last = max((ns for ns in gone if ns is not None), default=None)
                went = self.first(PV, volume, released_ns, deleted) if volume else last
                return {"gone": last, "volume_gone": went}
            case "stop":
                return {"halted": self.together(released_ns, (VM, vm, halted), (VMI, vm, deleted))}
        return self._boot(vm, released_ns)

    def _volume(self, disk: str) -> str | None:
        names = [obj["spec"].get("volumeName") for _, _, obj in self.log.get((PVC, disk), [])]
        return next((name for name in reversed(names) if name), None)

    def _boot(self, vm: str, released_ns: int) -> dict[str, int | None]:
        prefix = f"virt-launcher-{vm}-"
        logs = ((name, log) for (kind, name), log in self.log.items() if kind is POD)
        pods = [name for name, log in logs if name.startswith(prefix) and log[-1][0] > released_ns]
        placed = [
            self.first(POD, pod, released_ns, lambda _, obj: bool(obj["spec"].get("nodeName")))
            for pod in pods
        ]
        sshd = next((ns for ns in self.sshd.get(vm, []) if ns >= released_ns), None)
        banner = None if sshd is None else sshd + round(self.guest.banner_after_s * 1e9)
        return {
            "vmi_created": self.first(VMI, vm, released_ns, lambda what, _: what != "DELETED"),
            "pod_scheduled": min((ns for ns in placed if ns is not None), default=None),
            "vmi_scheduled": self.first(VMI, vm, released_ns, phase("Scheduled", "Running")),
            "running": self.first(VMI, vm, released_ns, phase("Running")),
            "ip_known": self.first(VMI, vm, released_ns, has_address),
            "tcp_open": sshd,
            "ssh_banner": banner,
            "ssh_ready": None if banner is None else banner + round(self.guest.command_after_s * 1e9),
        }


def phase(*names: str) -> Callable[[str, Object], bool]:
    return lambda what, obj: what != "DELETED" and obj.get("status", {}).get("phase") in names


def deleted(what: str, _: Object) -> bool:
    return what == "DELETED"


def stopped(what: str, obj: Object) -> bool:
    return what != "DELETED" and obj.get("status", {}).get("printableStatus") == "Stopped"


def halted(what: str, obj: Object) -> bool:
    return stopped(what, obj) and obj["spec"].get("runStrategy") == "Halted"


def has_address(what: str, obj: Object) -> bool:
    interfaces = obj.get("status", {}).get("interfaces") or [{}]
    return what != "DELETED" and bool(interfaces[0].get("ipAddress"))


class Checked(dict[str, list[float]]):
    """Per step (`stage step`) the error bounds of its records; `wrong` lists what lies outside its bound."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []


def check(world: World, truth: Truth) -> Checked:
    """Compare all records of the run with the truth."""
    checked = Checked()
    for batch in rows(world, "batches"):
        released_ns = round((batch["released_at"] - _epoch()).total_seconds() * 1e9)
        for vm in rows(world, TABLE_OF[batch["stage"]]):
            if (vm["batch"], vm["repeat"]) == (batch["batch"], batch["repeat"]):
                _compare(checked, truth, (batch["stage"], released_ns), vm)
    return checked


def _epoch() -> datetime:
    return EPOCH


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
