"""VirtualMachine status as virt-controller computes it: first match wins (KubeVirt 1.6)."""

from typing import Any

from infra.cluster.port import Object

FINAL = ("Succeeded", "Failed")
STARTED = ("Pending", "Scheduling", "Scheduled")


def condition(obj: Object, kind: str) -> dict[str, Any]:
    """A condition of an object by type, not to be changed; empty when it has none such."""
    for found in obj.get("status", {}).get("conditions") or ():
        if found["type"] == kind:
            return found  # type: ignore[no-any-return]
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
    volumes_say = "" if phase in FINAL or "deletionTimestamp" in vm["metadata"] else volume_status(volumes)
    if volumes_say != "DataVolumeError" and vmi is not None and _unschedulable(vmi):
        return "ErrorUnschedulable"
    if volumes_say:
        return volumes_say
    if phase in STARTED or (vmi is None and vm["spec"].get("runStrategy") == "Always"):
        return "Starting"
    return "Stopped"


def _unschedulable(vmi: Object) -> bool:
    """Shown even while an instance that never ran is being taken away (testbed.md B4)."""
    return condition(vmi, "PodScheduled").get("reason") == "Unschedulable"


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
    wanted: dict[str, Any] = {
        "printableStatus": printable_status(vm, vmi, volumes),
        "created": True if vmi is not None else None,
        "ready": True if ready["status"] == "True" else None,
        "conditions": [ready, *_copied(old, vmi)],
    }
    if vmi is not None:
        wanted["runStrategy"] = vm["spec"].get("runStrategy")
        wanted["desiredGeneration"] = vm["metadata"]["generation"]
        if "deletionTimestamp" not in vm["metadata"]:
            wanted["observedGeneration"] = vm["metadata"]["generation"]
    return wanted


def _copied(old: dict[str, Any], vmi: Object | None) -> list[dict[str, Any]]:
    """The instance's conditions but Ready; those that it no longer has stay on the VM (testbed.md B7)."""
    theirs = [c for c in (vmi or {}).get("status", {}).get("conditions") or () if c["type"] != "Ready"]
    types = {"Ready", *(c["type"] for c in theirs)}
    return [*theirs, *(c for c in old.get("conditions") or () if c["type"] not in types)]
