"""VirtualMachine status as virt-controller computes it: first match wins (KubeVirt 1.6)."""

from typing import Any

from infra.cluster.port import Object

FINAL = ("Succeeded", "Failed")
STARTED = ("Pending", "Scheduling", "Scheduled")


def condition(obj: Object, kind: str) -> dict[str, Any]:
    """A condition of an object by type; empty when it has none such."""
    for found in obj.get("status", {}).get("conditions") or ():
        if found["type"] == kind:
            return dict(found)
    return {}


def volume_status(volumes: list[Object | None]) -> str:
    """What the DataVolumes of a VM add: DataVolumeError, Provisioning, WaitingForVolumeBinding or ""."""
    phases = [(volume or {}).get("status", {}).get("phase", "") for volume in volumes]
    if any(phase == "Failed" or _errs(volume) for phase, volume in zip(phases, volumes, strict=True)):
        return "DataVolumeError"
    if any(phase not in ("Succeeded", "PendingPopulation") for phase in phases):
        return "Provisioning"
    return ""


def _errs(volume: Object | None) -> bool:
    running = condition(volume, "Running") if volume else {}
    return running.get("status") == "False" and running.get("reason") in ("Error", "ImagePullFailed")


def printable_status(vm: Object, vmi: Object | None, volumes: list[Object | None]) -> str:
    """One word for people: what `kubectl get vm` shows."""
    phase = vmi.get("status", {}).get("phase", "") if vmi else ""
    if "deletionTimestamp" in vm["metadata"] and vmi is not None:
        return "Terminating"
    if vmi is not None and "deletionTimestamp" in vmi["metadata"] and phase not in FINAL:
        return "Stopping"
    if phase == "Running":
        return "Running"
    if vmi is not None and condition(vmi, "PodScheduled").get("reason") == "Unschedulable" and phase not in FINAL:
        return "ErrorUnschedulable"
    volumes_say = volume_status(volumes)
    if volumes_say and phase not in FINAL and "deletionTimestamp" not in vm["metadata"]:
        return volumes_say
    if phase in STARTED or (vmi is None and vm["spec"].get("runStrategy") == "Always"):
        return "Starting"
    return "Stopped"


def ready_condition(vm: Object, vmi: Object | None) -> dict[str, Any]:
    """The VM's Ready condition, which follows the VMI's."""
    if vmi is None:
        return {"type": "Ready", "status": "False", "reason": "VMINotExists"}
    ready = condition(vmi, "Ready")
    if not ready:
        return {"type": "Ready", "status": "False", "reason": "VMIConditionMissing"}
    return {"type": "Ready", "status": ready["status"], "reason": ready.get("reason", "")}


def wanted_status(vm: Object, vmi: Object | None, volumes: list[Object | None]) -> dict[str, Any]:
    """The status to write, as a merge patch: null where the real one leaves a field out."""
    ready = ready_condition(vm, vmi)
    old = vm.get("status", {})
    kept = [c for c in old.get("conditions") or () if c["type"] not in ("Ready", "LiveMigratable")]
    migratable = [{"type": "LiveMigratable", "status": "True"}]
    running = vmi is not None and vmi.get("status", {}).get("phase") == "Running"
    stays = bool(condition(vm, "LiveMigratable"))
    wanted: dict[str, Any] = {
        "printableStatus": printable_status(vm, vmi, volumes),
        "created": True if vmi is not None else None,
        "ready": True if ready["status"] == "True" else None,
        "conditions": [ready, *kept, *(migratable if running or stays else [])],
    }
    if vmi is not None:
        generation = vm["metadata"]["generation"]
        wanted["runStrategy"] = vm["spec"].get("runStrategy")
        wanted["observedGeneration"] = wanted["desiredGeneration"] = generation
    return wanted
