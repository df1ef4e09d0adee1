"""The HyperConverged operator: what its resource says becomes KubeVirt's configuration."""

import json
from typing import Any

from infra.cluster.kinds import HYPERCONVERGED, KUBEVIRT
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers.conditions import reported, same_states
from infra.cluster.virtual.controllers.virt_config import limits
from infra.cluster.virtual.description import Rate
from infra.cluster.virtual.informer import Key
from infra.errors import ClusterError

MANAGER = "hyperconverged-operator"
ANNOTATION = "hco.kubevirt.io/tuningPolicy"
HIGH_BURST = Rate(qps=200, burst=400)
LIMITED = ("apiConfiguration", "controllerConfiguration", "handlerConfiguration", "webhookConfiguration")
MIGRATIONS = (
    "bandwidthPerMigration",
    "completionTimeoutPerGiB",
    "network",
    "parallelMigrationsPerCluster",
    "parallelOutboundMigrationsPerNode",
    "progressTimeout",
)
KUBEVIRT_NAME = "kubevirt-kubevirt-hyperconverged"
WELL = {
    "ReconcileComplete": True,
    "Available": True,
    "Progressing": False,
    "Degraded": False,
    "Upgradeable": True,
}


class Refused(ClusterError):
    """The operator does not carry out what the resource says."""


class HyperConverged:
    """Reconciles the one HyperConverged resource; the same limit goes to all four components."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.client(Rate(qps=0, burst=0))
        self._cache = plane.informer(HYPERCONVERGED).cache
        self._queue = plane.queue(self._reconcile, 1, "hyperconverged")
        plane.informer(HYPERCONVERGED).on_change(self._changed)

    def _changed(self, what: str, obj: Object, before: Object | None) -> None:
        meta = obj["metadata"]
        if what == "DELETED" or (before is not None and _said(obj) == _said(before)):
            return
        self._queue.add((meta["namespace"], meta["name"]))

    async def _reconcile(self, key: Key) -> None:
        await self._plane.clock.sleep(self._plane.description.openshift.reconcile_s)
        obj = self._cache.get(key)
        if obj is None:
            return
        try:
            configuration = configuration_of(obj)
        except Refused as error:
            await self._report(obj, WELL | {"ReconcileComplete": False, "Degraded": True}, str(error))
            return
        wanted = {
            "apiVersion": KUBEVIRT.api_version,
            "kind": KUBEVIRT.kind,
            "metadata": {"name": KUBEVIRT_NAME, "namespace": key[0]},
            "spec": {"configuration": configuration},
        }
        await self._api.apply(wanted, MANAGER, force=True)
        await self._report(obj, WELL, "")

    async def _report(self, obj: Object, states: dict[str, bool], message: str) -> None:
        generation = obj["metadata"]["generation"]
        if same_states(obj, states) and (obj.get("status") or {}).get("observedGeneration") == generation:
            return
        conditions = reported(self._plane.clock, states, message)
        status = {"conditions": conditions, "observedGeneration": generation}
        ref = Ref(HYPERCONVERGED, obj["metadata"]["namespace"], obj["metadata"]["name"])
        await self._api.patch(ref, {"status": status}, subresource="status")


def _said(obj: Object) -> tuple[object, object]:
    return obj.get("spec"), (obj["metadata"].get("annotations") or {}).get(ANNOTATION)


def configuration_of(obj: Object) -> Object:
    """KubeVirt's configuration as a HyperConverged resource asks for it.

    Raises:
        Refused: tuning policy and annotation contradict each other.
    """
    spec = obj.get("spec") or {}
    rate = _limit(spec, (obj["metadata"].get("annotations") or {}).get(ANNOTATION))
    found: dict[str, Any] = {key: limits(rate) for key in LIMITED} if rate else {}
    migrations = spec.get("liveMigrationConfig") or {}
    said = {key: migrations[key] for key in MIGRATIONS if key in migrations}
    found |= {"migrations": said} if said else {}
    for key in ("ksmConfiguration", "evictionStrategy"):
        if key in spec:
            found[key] = spec[key]
    if "disableSerialConsoleLog" in (spec.get("virtualMachineOptions") or {}):
        log = spec["virtualMachineOptions"]["disableSerialConsoleLog"]
        found["virtualMachineOptions"] = {"disableSerialConsoleLog": {}} if log else {}
    developer: dict[str, Any] = {}
    ratio = (spec.get("resourceRequirements") or {}).get("vmiCPUAllocationRatio")
    percentage = (spec.get("higherWorkloadDensity") or {}).get("memoryOvercommitPercentage")
    developer |= {"cpuAllocationRatio": ratio} if ratio is not None else {}
    developer |= {"memoryOvercommit": percentage} if percentage is not None else {}
    return found | ({"developerConfiguration": developer} if developer else {})


def _limit(spec: Object, annotation: str | None) -> Rate | None:
    policy = spec.get("tuningPolicy")
    if policy == "highBurst":
        if annotation:
            raise Refused("the highBurst policy does not go with the tuningPolicy annotation")
        return HIGH_BURST
    if policy != "annotation":
        return None
    try:
        said = json.loads(annotation or "")
        return Rate(qps=said["qps"], burst=said["burst"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"tuningPolicy annotation: not qps and burst: {error}") from error
