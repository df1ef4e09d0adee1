"""virt-controller's VM controller: DataVolumes and VMI of a VirtualMachine, and its status.

Three workers, as in KubeVirt 1.6: under load this queue is why VM state lags VMI state
(testbed.md B5).
"""

from typing import Any

from infra.cluster.kinds import CONTROLLER_REVISION, DATA_VOLUME, VM, VMI
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import (
    ControlPlane,
    Latest,
    announce,
    ensure,
    owner_reference,
    unchanged,
)
from infra.cluster.virtual.controllers.instance_types import sized
from infra.cluster.virtual.controllers.printable_status import FINAL, volume_status, wanted_status
from infra.cluster.virtual.informer import Key
from infra.cluster.virtual.store import merge
from infra.errors import AlreadyExists

FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
VMI_FINALIZERS = [FINALIZER, "kubevirt.io/foregroundDeleteVirtualMachine"]
ANNOTATIONS = {
    "kubevirt.io/latest-observed-api-version": "v1",
    "kubevirt.io/storage-observed-api-version": "v1",
}


class VirtualMachineController:
    """Reconciles VirtualMachines."""

    def __init__(self, plane: ControlPlane, api: Cluster) -> None:
        self._plane = plane
        self._api = api
        self._vms = Latest(plane.informer(VM))
        self._vmis = plane.informer(VMI).cache
        self._volumes = plane.informer(DATA_VOLUME).cache
        virt = plane.description.virt
        self._cpu_s = virt.vm_reconcile_s
        self._made: dict[str, int] = {}
        self.queue = plane.queue(self.reconcile, virt.vm_workers, "virt-controller vm")
        plane.informer(VM).on_change(self._vm_changed)
        plane.informer(VMI).on_change(self._owned_changed)
        plane.informer(DATA_VOLUME).on_change(self._owned_changed)

    def _vm_changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what == "DELETED":
            self._made.pop(obj["metadata"]["uid"], None)
        elif unchanged(obj, before) if before is not None else _at_rest(obj):
            return
        self.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def _owned_changed(self, what: str, obj: Object, before: Object | None) -> None:
        owners = obj["metadata"].get("ownerReferences")
        if not owners or owners[0]["kind"] != VM.kind:
            return
        if what == "MODIFIED" and before is not None and not _differs(obj, before):
            return
        if what == "ADDED" and obj["kind"] == DATA_VOLUME.kind and "status" in obj:
            # only a list shows a DataVolume for the first time with a status: its VM is listed too
            return
        self.queue.add((obj["metadata"]["namespace"], owners[0]["name"]))

    async def reconcile(self, key: Key) -> None:
        """Make DataVolumes and VMI what the spec asks for, then write the status."""
        vm = self._vms.get(key)
        if vm is None:
            return
        if self._cpu_s:
            await self._plane.clock.sleep(self._cpu_s)
        if "status" not in vm:
            vm = await self._write_status(key, vm, {"printableStatus": "Stopped"})
        if (
            FINALIZER not in (vm["metadata"].get("finalizers") or ())
            and "deletionTimestamp" not in vm["metadata"]
        ):
            change = {"annotations": ANNOTATIONS, "finalizers": [FINALIZER]}
            vm = self._vms.wrote(await self._api.patch(Ref(VM, *key), {"metadata": change}))
        if "deletionTimestamp" in vm["metadata"] and key not in self._vmis:
            await self._api.patch(Ref(VM, *key), {"metadata": {"finalizers": None}})
            return
        await self._sync(key, vm)
        await self._update_status(key, vm)

    async def _sync(self, key: Key, vm: Object) -> None:
        vmi = self._vmis.get(key)
        going = "deletionTimestamp" in vm["metadata"]
        if not going:
            await self._make_volumes(key, vm)
        wanted = vm["spec"].get("runStrategy") == "Always" and not going
        if vmi is None:
            if wanted and self._volumes_ready(key, vm):
                await self._start(key, vm)
        elif "deletionTimestamp" not in vmi["metadata"] and (
            not wanted or vmi.get("status", {}).get("phase") in FINAL
        ):
            uid = vmi["metadata"]["uid"]
            await self._api.delete(Ref(VMI, *key), uid=uid)
            message = f"Stopped the virtual machine by deleting the virtual machine instance {uid}"
            await announce(self._api, vm, "SuccessfulDelete", message)

    async def _make_volumes(self, key: Key, vm: Object) -> None:
        for template in vm["spec"].get("dataVolumeTemplates") or ():
            name = template["metadata"]["name"]
            if (key[0], name) in self._volumes:
                continue
            meta = {**template["metadata"], "namespace": key[0], "ownerReferences": [owner_reference(vm)]}
            volume = {
                "apiVersion": DATA_VOLUME.api_version,
                "kind": DATA_VOLUME.kind,
                "metadata": meta,
                "spec": template["spec"],
            }
            try:
                await self._api.create(volume)
            except AlreadyExists:
                continue

    def _templates(self, key: Key, vm: Object) -> list[Object | None]:
        templates = vm["spec"].get("dataVolumeTemplates") or ()
        return [self._volumes.get((key[0], template["metadata"]["name"])) for template in templates]

    def _volumes_ready(self, key: Key, vm: Object) -> bool:
        phases = [(volume or {}).get("status", {}).get("phase") for volume in self._templates(key, vm)]
        return all(phase in ("Succeeded", "PendingPopulation") for phase in phases)

    async def _start(self, key: Key, vm: Object) -> None:
        """One VMI per start; a cache that has not seen it yet must not make a second one."""
        uid, generation = vm["metadata"]["uid"], vm["metadata"]["generation"]
        if self._made.get(uid) == generation:
            return
        self._made[uid] = generation
        await ensure(self._api, self._revision(key, vm, generation))
        await ensure(self._api, self._instance(key, vm, await sized(self._api, vm)))
        message = f"Started the virtual machine by creating the new virtual machine instance {key[1]}"
        await announce(self._api, vm, "SuccessfulCreate", message)

    def _revision(self, key: Key, vm: Object, generation: int) -> Object:
        return {
            "apiVersion": CONTROLLER_REVISION.api_version,
            "kind": CONTROLLER_REVISION.kind,
            "metadata": {
                "name": f"revision-start-vm-{vm['metadata']['uid']}-{generation}",
                "namespace": key[0],
                "labels": vm["metadata"].get("labels") or {},
                "ownerReferences": [owner_reference(vm)],
            },
            "revision": generation,
            "data": {},
        }

    def _instance(self, key: Key, vm: Object, spec: Object) -> Object:
        template = vm["spec"]["template"]
        return {
            "apiVersion": VMI.api_version,
            "kind": VMI.kind,
            "metadata": {
                "name": key[1],
                "namespace": key[0],
                "labels": (template.get("metadata") or {}).get("labels") or {},
                "annotations": {"kubevirt.io/vm-generation": str(vm["metadata"]["generation"])},
                "finalizers": VMI_FINALIZERS,
                "ownerReferences": [owner_reference(vm)],
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }

    async def _update_status(self, key: Key, vm: Object) -> None:
        vm = self._vms.get(key) or vm
        wanted = wanted_status(vm, self._vmis.get(key), self._templates(key, vm))
        await self._write_status(key, vm, wanted)

    async def _write_status(self, key: Key, vm: Object, wanted: dict[str, Any]) -> Object:
        old = vm.get("status", {})
        if vm.get("status") is not None and merge(old, wanted) is old:
            return vm
        return self._vms.wrote(await self._api.patch(Ref(VM, *key), {"status": wanted}, subresource="status"))


def _differs(owned: Object, before: Object) -> bool:
    same = owned.get("status") is before.get("status")
    if same and "deletionTimestamp" not in owned["metadata"]:
        return False
    return _news(owned) != _news(before)


def _news(owned: Object) -> tuple[object, ...]:
    """What of a DataVolume or VMI shows in its VM's status."""
    status = owned.get("status", {})
    if owned["kind"] == DATA_VOLUME.kind:
        return volume_status([owned]), status.get("phase") == "Succeeded"
    deleted = "deletionTimestamp" in owned["metadata"]
    return status.get("phase"), deleted, status.get("conditions")


def _at_rest(vm: Object) -> bool:
    """A halted VM as it was left: thousands of them are listed when a cluster is opened again.

    The very first Stopped, before its DataVolumes exist, is written without conditions.
    """
    status = vm.get("status", {})
    return (
        status.get("printableStatus") == "Stopped"
        and "created" not in status
        and vm["spec"].get("runStrategy") == "Halted"
        and bool(vm["metadata"].get("finalizers"))
        and "deletionTimestamp" not in vm["metadata"]
        and bool(status.get("conditions"))
    )
