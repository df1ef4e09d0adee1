"""virt-handler on every node: starts and stops domains, reports Running and the address."""

from infra.cluster.kinds import VMI
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers.printable_status import FINAL
from infra.cluster.virtual.informer import Key

MIGRATABLE = tuple({"type": kind, "status": "True"} for kind in ("LiveMigratable", "StorageLiveMigratable"))
TERMINATING = {"type": "Ready", "status": "False", "reason": "PodTerminating"}


class Handlers:
    """All virt-handlers: one client (and so one rate limit) per node."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._virt = plane.description.virt
        self._vmis = plane.informer(VMI)
        self._clients: dict[str, Cluster] = {}
        self._busy: set[str] = set()
        self._vmis.on_change(self._changed)

    def _client(self, node: str) -> Cluster:
        if node not in self._clients:
            self._clients[node] = self._plane.rates.client("virt_handler", node)
        return self._clients[node]

    def _changed(self, what: str, obj: Object, _: Object | None) -> None:
        status = obj.get("status", {})
        phase, uid = status.get("phase"), obj["metadata"]["uid"]
        if what == "DELETED" or "nodeName" not in status or uid in self._busy or phase in FINAL:
            return
        key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
        if "deletionTimestamp" in obj["metadata"]:
            self._begin(uid, self._stop(key, obj))
        elif phase == "Scheduled":
            self._begin(uid, self._start(key, obj))

    def _begin(self, uid: str, work: object) -> None:
        self._busy.add(uid)
        self._plane.spawn(work, f"virt-handler {uid}")  # type: ignore[arg-type]

    async def _start(self, key: Key, vmi: Object) -> None:
        uid, node = vmi["metadata"]["uid"], vmi["status"]["nodeName"]
        name = key[1]
        virt, draws = self._virt, self._plane.draws
        await self._plane.clock.sleep(
            draws.around_s(virt.domain_start_s, virt.domain_spread, "domain start", name)
        )
        if self._plane.faults.lost:
            await self._plane.faults.reach(node)
        boots = not self._plane.faults.strikes("never-boots", vmi)
        self._plane.machines.power_on(name, _disk(key, vmi), node, boots=boots)
        # an address of the documentation range would not do for 6,000: one of 10.128.0.0/9, by uid
        number = int(uid[-6:], 16)
        address = f"10.{128 + (number >> 16 & 127)}.{number >> 8 & 255}.{number & 255}"
        conditions = [*(vmi["status"].get("conditions") or ()), *MIGRATABLE]
        interfaces = [{"name": "default", "ipAddress": address}]
        status = {"phase": "Running", "interfaces": interfaces, "conditions": conditions}
        await self._client(node).patch(Ref(VMI, *key), {"status": status})
        self._free(key, uid)

    async def _stop(self, key: Key, vmi: Object) -> None:
        uid, node = vmi["metadata"]["uid"], vmi["status"]["nodeName"]
        await self._plane.clock.sleep(self._virt.domain_stop_s)
        if self._plane.faults.lost:
            await self._plane.faults.reach(node)
        self._plane.machines.power_off(key[1])
        phase = "Succeeded" if vmi["status"]["phase"] == "Running" else "Failed"
        kept = [c for c in vmi["status"].get("conditions") or () if c["type"] != "Ready"]
        status = {"phase": phase, "conditions": [TERMINATING, *kept]}
        await self._client(node).patch(Ref(VMI, *key), {"status": status})
        self._busy.discard(uid)

    def _free(self, key: Key, uid: str) -> None:
        """What changed while a start was in work is looked at now."""
        self._busy.discard(uid)
        latest = self._vmis.cache.get(key)
        if (
            latest is not None
            and latest["metadata"]["uid"] == uid
            and "deletionTimestamp" in latest["metadata"]
        ):
            self._changed("MODIFIED", latest, None)


def _disk(key: Key, vmi: Object) -> str:
    for volume in vmi["spec"].get("volumes") or ():
        if "dataVolume" in volume:
            return f"{key[0]}/{volume['dataVolume']['name']}"
    return f"{key[0]}/{key[1]}"
