"""Objects of other people's, of shapes that virtscale never makes, do not disturb the controllers."""

import asyncio

from infra.cluster.kinds import DATA_VOLUME, NAMESPACE, NODE, POD, PV, SNAPSHOT, VM, VMI
from infra.cluster.port import Object, Ref
from tests.unit.virtual.conftest import OpenCluster, manifest

CONTAINER = {"name": "c", "image": "i"}
STRANGERS: list[Object] = [
    manifest(POD, "bare", spec={"containers": [CONTAINER]}),
    manifest(POD, "scratch", spec={"containers": [CONTAINER], "volumes": [{"name": "tmp", "emptyDir": {}}]}),
    manifest(PV, "static", spec={"capacity": {"storage": "1Gi"}}),
    manifest(NODE, "odd", spec={}, status={"images": [{"sizeBytes": 1}, {"names": []}]}),
    manifest(SNAPSHOT, "imported", spec={"source": {"volumeSnapshotContentName": "c"}}),
    manifest(DATA_VOLUME, "sourceless", spec={"storage": {"resources": {"requests": {"storage": "1Gi"}}}}),
    manifest(
        DATA_VOLUME,
        "minimal",
        spec={"source": {"blank": {}}, "pvc": {"resources": {"requests": {"storage": "1Gi"}}}},
    ),
    manifest(
        DATA_VOLUME,
        "waits",
        spec={"sourceRef": {"kind": "DataSource", "name": "x"}, "storage": {"resources": {"requests": {}}}},
    ),
    manifest(VM, "old-style", spec={"running": False, "template": {"spec": {"domain": {}}}}),
    manifest(VMI, "bare", spec={"domain": {}}),
]


def test_the_controllers_live_on_beside_them_and_serve_them(open_cluster: OpenCluster) -> None:
    cluster = open_cluster()

    async def body() -> None:
        api = cluster.client
        await api.create(manifest(NAMESPACE, "ns"))
        for stranger in STRANGERS:
            await api.create(stranger)
        await asyncio.sleep(120)
        phases = {}
        for kind, name in ((POD, "bare"), (POD, "scratch"), (VMI, "bare"), (DATA_VOLUME, "minimal")):
            phases[f"{kind} {name}"] = (await api.get(Ref(kind, "ns", name)))["status"]["phase"]
        assert phases == {
            "Pod bare": "Running",
            "Pod scratch": "Running",
            "VirtualMachineInstance bare": "Running",
            "DataVolume minimal": "Succeeded",
        }
        assert (await api.get(Ref(DATA_VOLUME, "ns", "waits")))["status"]["phase"] == "Pending"
        assert (await api.get(Ref(VM, "ns", "old-style")))["status"]["printableStatus"] == "Stopped"

    cluster.run(body())
