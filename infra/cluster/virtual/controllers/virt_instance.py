"""virt-controller's VMI controller: the launcher pod of a VirtualMachineInstance, and its phases."""

from typing import Any

from infra.cluster.kinds import DISRUPTION_BUDGET, POD, PVC, VMI
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane, Latest, announce, owner_reference
from infra.cluster.virtual.controllers.printable_status import FINAL, condition
from infra.cluster.virtual.informer import Key
from infra.errors import AlreadyExists, Denied, NotFound

FOREGROUND = "kubevirt.io/foregroundDeleteVirtualMachine"
CREATED_BY = "kubevirt.io/created-by"
DOMAIN = "vm.kubevirt.io/name"
OBSERVED = {"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"}
"""Virt-controller's first write of all to a VMI, as recorded: it costs a call like every other."""

POD_GONE = {"type": "Ready", "status": "False", "reason": "PodNotExists"}
NO_POD_YET = {**POD_GONE, "message": "virt-launcher pod has not yet been scheduled"}


def launcher_name(vmi: Object) -> str:
    """Pod of a VMI: as upstream's generated name, but the same in every run."""
    return f"virt-launcher-{vmi['metadata']['name']}-{vmi['metadata']['uid'][-5:]}"


class InstanceController:
    """Reconciles VirtualMachineInstances; ten workers."""

    def __init__(self, plane: ControlPlane, api: Cluster) -> None:
        self._plane = plane
        self._api = api
        self._vmis = Latest(plane.informer(VMI))
        self._pods = plane.informer(POD).cache
        virt = plane.description.virt
        self._cpu_s = virt.vmi_reconcile_s
        self._budgets = virt.disruption_budgets
        self._made: set[str] = set()
        self._claims = plane.informer(PVC).cache
        self._waiting: dict[Key, Key] = {}
        self.queue = plane.queue(self.reconcile, virt.vmi_workers, "virt-controller vmi")
        plane.informer(VMI).on_change(self._vmi_changed)
        plane.informer(POD).on_change(self._pod_changed)
        plane.informer(PVC).on_change(self._claim_changed)

    def _vmi_changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what == "DELETED":
            self._made.discard(obj["metadata"]["uid"])
        elif before is not None and _own_write(obj, before):
            return
        self.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def _pod_changed(self, what: str, obj: Object, before: Object | None) -> None:
        if before is not None and what == "MODIFIED" and _pod_news(obj) == _pod_news(before):
            return
        labels = obj["metadata"].get("labels") or {}
        if CREATED_BY in labels:
            self.queue.add((obj["metadata"]["namespace"], labels[DOMAIN]))

    def _claim_changed(self, what: str, obj: Object, before: Object | None) -> None:
        waiting = self._waiting.pop((obj["metadata"]["namespace"], obj["metadata"]["name"]), None)
        if waiting is not None:
            self.queue.add(waiting)

    async def reconcile(self, key: Key) -> None:
        """Pending -> pod -> Scheduling -> Scheduled; then virt-handler; at the end let go."""
        vmi = self._vmis.get(key)
        if vmi is None:
            return
        if self._cpu_s:
            await self._plane.clock.sleep(self._cpu_s)
        phase = vmi.get("status", {}).get("phase") or ""
        pod = self._pods.get((key[0], launcher_name(vmi)))
        if "deletionTimestamp" in vmi["metadata"] or phase in FINAL:
            await self._let_go(key, vmi, pod, phase)
        elif phase in ("", "Pending"):
            await self._launch(key, vmi, pod)
        elif phase == "Scheduling" and pod is not None:
            await self._hand_over(key, vmi, pod)
        elif phase == "Running":
            await self._follow_ready(key, vmi)

    async def _launch(self, key: Key, vmi: Object, pod: Object | None) -> None:
        uid = vmi["metadata"]["uid"]
        if pod is None and uid not in self._made:
            missing = [claim for claim in _claims(vmi) if (key[0], claim) not in self._claims]
            if missing:
                await self._wait_for(key, vmi, missing[0])
                return
            self._made.add(uid)
            await self._write(key, {"metadata": {"annotations": OBSERVED}})
            if self._budgets:
                await self._make_budget(key, vmi)
            try:
                await self._api.create(self._launcher(key, vmi))
            except AlreadyExists:
                return
            except Denied as error:
                self._made.discard(uid)
                await self._denied(key, vmi, error)
                raise
            await announce(
                self._api, vmi, "SuccessfulCreate", f"Created virtual machine pod {launcher_name(vmi)}"
            )
        elif pod is not None:
            await self._write(key, {"status": {"phase": "Scheduling", "conditions": _scheduling(vmi)}})
            if _pod_news(pod) != (False, "", ""):
                # a slow controller: its own write is no news, and the pod's came before it
                self.queue.add(key)

    async def _wait_for(self, key: Key, vmi: Object, claim: str) -> None:
        """No pod before its claim is there; said once, as recorded (cases/kubevirt/faults.jsonl)."""
        self._waiting[key[0], claim] = key
        text = f"PVC {key[0]}/{claim} does not exist, waiting for it to appear"
        if condition(vmi, "Synchronized").get("message") == text:
            return
        await announce(self._api, vmi, "FailedPvcNotFound", text)
        said = {"status": "False", "message": text}
        conditions = [
            NO_POD_YET,
            {"type": "PodScheduled", "reason": "Unschedulable", **said},
            {"type": "Synchronized", "reason": "FailedPvcNotFound", **said},
        ]
        await self._write(key, {"status": {"phase": "Pending", "conditions": conditions}})

    async def _denied(self, key: Key, vmi: Object, error: Denied) -> None:
        """The cluster's rules refuse the pod: said once, tried again (KubeVirt's source; not recorded)."""
        text = f"failed to create virtual machine pod: {error}"
        if condition(vmi, "Synchronized").get("message") == text:
            return
        await announce(self._api, vmi, "FailedCreate", f"Error creating pod: {error}")
        failed = {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": text}
        await self._write(key, {"status": {"phase": "Pending", "conditions": [NO_POD_YET, failed]}})

    async def _make_budget(self, key: Key, vmi: Object) -> None:
        budget = {
            "apiVersion": DISRUPTION_BUDGET.api_version,
            "kind": DISRUPTION_BUDGET.kind,
            "metadata": {
                "name": f"kubevirt-disruption-budget-{vmi['metadata']['uid'][-5:]}-{key[1]}"[:63],
                "namespace": key[0],
                "ownerReferences": [owner_reference(vmi)],
            },
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {CREATED_BY: vmi["metadata"]["uid"]}}},
        }
        try:
            await self._api.create(budget)
        except AlreadyExists:
            return
        await announce(self._api, vmi, "SuccessfulCreate", "Created PodDisruptionBudget")

    def _launcher(self, key: Key, vmi: Object) -> Object:
        nodes = self._plane.description.nodes
        domain = vmi["spec"]["domain"]
        cpu = domain.get("cpu") or {}
        cores = cpu.get("cores", 1) * cpu.get("sockets", 1) * cpu.get("threads", 1)
        requests = {
            "cpu": f"{1000 * cores // nodes.cpu_allocation_ratio}m",
            "memory": f"{round(_memory_mib(domain) + nodes.launcher_overhead_gib * 1024)}Mi",
            "devices.kubevirt.io/kvm": "1",
        }
        claims = [
            volume["dataVolume"]["name"]
            for volume in vmi["spec"].get("volumes") or ()
            if "dataVolume" in volume
        ]
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        labels = {**(vmi["metadata"].get("labels") or {}), CREATED_BY: vmi["metadata"]["uid"], DOMAIN: key[1]}
        limits = {"devices.kubevirt.io/kvm": "1"}
        container = {
            "name": "compute",
            "image": "virt-launcher",
            "resources": {"requests": requests, "limits": limits},
        }
        spec: dict[str, Any] = {
            "containers": [container],
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Never",
        }
        if volumes:
            spec["volumes"] = volumes
        if "nodeSelector" in vmi["spec"]:
            spec["nodeSelector"] = vmi["spec"]["nodeSelector"]
            spec["tolerations"] = vmi["spec"].get("tolerations") or []
        return {
            "apiVersion": POD.api_version,
            "kind": POD.kind,
            "metadata": {
                "name": launcher_name(vmi),
                "namespace": key[0],
                "labels": {**labels, "kubevirt.io": "virt-launcher"},
                "ownerReferences": [owner_reference(vmi)],
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }

    async def _hand_over(self, key: Key, vmi: Object, pod: Object) -> None:
        scheduled = condition(pod, "PodScheduled")
        if condition(pod, "Ready").get("status") == "True":
            node = pod["spec"]["nodeName"]
            status = {"phase": "Scheduled", "nodeName": node, "interfaces": [{"name": "default"}]}
            await self._write(key, {"metadata": {"labels": {"kubevirt.io/nodeName": node}}, "status": status})
        elif scheduled.get("reason") == "Unschedulable" and not condition(vmi, "PodScheduled"):
            kept = vmi["status"].get("conditions") or []
            await self._write(key, {"status": {"conditions": [*kept, scheduled]}})

    async def _follow_ready(self, key: Key, vmi: Object) -> None:
        if condition(vmi, "Ready").get("status") != "True":
            kept = [c for c in vmi["status"].get("conditions") or () if c["type"] != "Ready"]
            await self._write(key, {"status": {"conditions": [{"type": "Ready", "status": "True"}, *kept]}})

    async def _let_go(self, key: Key, vmi: Object, pod: Object | None, phase: str) -> None:
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            await self._delete_pod(key, vmi, pod)
        held = list(vmi["metadata"].get("finalizers") or ())
        if phase in FINAL:
            held = [name for name in held if name == FOREGROUND and pod is not None]
        elif pod is None and "nodeName" not in vmi["status"]:
            # no virt-handler ever had it: nobody else will end it (B4: Failed, not Succeeded)
            kept = [c for c in vmi["status"].get("conditions") or () if c["type"] != "Ready"]
            await self._write(key, {"status": {"phase": "Failed", "conditions": [POD_GONE, *kept]}})
            return
        if held != list(vmi["metadata"].get("finalizers") or ()):
            await self._write(key, {"metadata": {"finalizers": held or None}})

    async def _delete_pod(self, key: Key, vmi: Object, pod: Object) -> None:
        try:
            await self._api.delete(Ref(POD, key[0], pod["metadata"]["name"]), uid=pod["metadata"]["uid"])
        except NotFound:
            return
        await announce(
            self._api, vmi, "SuccessfulDelete", f"Deleted virtual machine pod {launcher_name(vmi)}"
        )

    async def _write(self, key: Key, change: Object) -> None:
        self._vmis.wrote(await self._api.patch(Ref(VMI, *key), change))


def _claims(vmi: Object) -> list[str]:
    """PersistentVolumeClaims that an instance names itself; those of its DataVolumes are made for it."""
    volumes = vmi["spec"].get("volumes") or ()
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


def _scheduling(vmi: Object) -> list[dict[str, Any]]:
    ready = {"type": "Ready", "status": "False", "reason": "GuestNotRunning"}
    if not any("dataVolume" in volume for volume in vmi["spec"].get("volumes") or ()):
        return [ready]
    return [ready, {"type": "DataVolumesReady", "status": "True", "reason": "AllDVsReady"}]


def _own_write(vmi: Object, before: Object) -> bool:
    """What this controller wrote itself is no news; its next step waits for the pod."""
    if ("deletionTimestamp" in vmi["metadata"]) != ("deletionTimestamp" in before["metadata"]):
        return False
    phase = vmi.get("status", {}).get("phase")
    return phase in ("Scheduling", "Scheduled") or (phase == "Running" and _running(before))


def _running(vmi: Object) -> bool:
    return bool(vmi.get("status", {}).get("phase") == "Running")


def _pod_news(pod: Object) -> tuple[bool, str, str]:
    """What of a pod matters to its VMI: deletion, readiness, a scheduler that refuses."""
    ready = condition(pod, "Ready").get("status", "")
    refused = condition(pod, "PodScheduled").get("reason", "")
    return "deletionTimestamp" in pod["metadata"], ready, refused


def _memory_mib(domain: Object) -> float:
    text = str(
        (domain.get("memory") or {}).get("guest")
        or domain.get("resources", {}).get("requests", {}).get("memory", "2Gi")
    )
    units = {"Ki": 1 / 1024, "Mi": 1.0, "Gi": 1024.0, "M": 1e6 / 2**20, "G": 1e9 / 2**20}
    for unit, mib in units.items():
        if text.endswith(unit):
            return float(text[: -len(unit)]) * mib
    return float(text) / 2**20
