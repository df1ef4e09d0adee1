"""virt-api's start and stop: answers as recorded from the real one (testbed.md B2)."""

from infra.cluster.kinds import VM, VMI
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.controllers.printable_status import FINAL
from infra.errors import Conflict, NotFound


def _refused(name: str, why: str) -> Conflict:
    return Conflict(f'Operation cannot be fulfilled on virtualmachine.kubevirt.io "{name}": {why}')


async def _instance(api: Cluster, namespace: str, name: str) -> Object | None:
    try:
        return await api.get(Ref(VMI, namespace, name))
    except NotFound:
        return None


async def _machine(api: Cluster, namespace: str, name: str) -> Object:
    try:
        return await api.get(Ref(VM, namespace, name))
    except NotFound as error:
        raise NotFound(f'virtualmachine.kubevirt.io "{name}" not found') from error


async def start(api: Cluster, namespace: str, name: str, body: Object) -> None:
    """Start a halted VirtualMachine: its runStrategy becomes Always."""
    vm = await _machine(api, namespace, name)
    vmi = await _instance(api, namespace, name)
    if vmi is not None and vmi.get("status", {}).get("phase") not in FINAL:
        raise _refused(name, "VM is already running")
    strategy = vm["spec"].get("runStrategy")
    if strategy != "Halted":
        raise _refused(name, f"{strategy} does not support manual start requests")
    if "dryRun" not in body:
        await api.patch(Ref(VM, namespace, name), {"spec": {"runStrategy": "Always"}})


async def stop(api: Cluster, namespace: str, name: str, body: Object) -> None:
    """Stop a VirtualMachine: its runStrategy becomes Halted."""
    vm = await _machine(api, namespace, name)
    vmi = await _instance(api, namespace, name)
    if vmi is None:
        raise _refused(name, "VM is not running")
    if vm["spec"].get("runStrategy") == "Halted":
        raise _refused(name, "Halted only supports manual stop requests with a shorter graceperiod")
    if "dryRun" not in body:
        await api.patch(Ref(VM, namespace, name), {"spec": {"runStrategy": "Halted"}})
