"""What is rendered is accepted by a real API server, strictly; a name that is not there is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from infra import manifests
from infra.cluster.port import Object
from infra.errors import ClusterError, InvalidRun
from infra.guests.ssh.cloud_init import cloud_init
from infra.guests.ssh.settings import SshSettings
from infra.manifests import Disk, Machine, Mark, Source
from infra.realtime_manifests import RealTime, realtime_machine
from infra.testbed import apply, seed
from infra.testbed.state import CONTEXT, State
from infra.world import World, WorldSpec, open_world
from tasks.preflight import preflight
from tasks.profile import Profile
from tasks.provisioning import machine_of
from tasks.records import TABLES
from tests.unit.stages.conftest import profile_of, rows
from tests.unit.test_own_manifest import OWN

pytestmark = [pytest.mark.api, pytest.mark.timeout(300)]
RUN = "rendered"
VMS = f"{RUN}-vms"
MARK = Mark(RUN, "nonce", "deploy", 4, 1)
SOURCE = Source("default", "image")
DISK = Disk(21, seed.STORAGE_CLASS, "ReadWriteMany", "Block")
PLAIN = Machine(1, 2.0, DISK)
ADDRESSED = cloud_init(SshSettings(cidr="198.18.0.0/18", gateway="198.18.0.1"), "vm-1", "ssh-ed25519 AAAA")
SHAPES = {
    "plain": PLAIN,
    "on a network": Machine(2, 1.5, DISK, "lab/vlan7", ADDRESSED, "low"),
    "of an instance type": Machine(1, 2.0, DISK, instance_type="u1.small", preference="rhel.9"),
    "of a manifest": Machine(1, 2.0, DISK, cloud_init=ADDRESSED, manifest=yaml.safe_load(OWN)),
}
RENDERED: dict[str, Object] = {
    **{
        f"VM {name}": manifests.virtual_machine("vm-1", "default", MARK, shape, SOURCE)
        for name, shape in SHAPES.items()
    },
    "real-time VM": realtime_machine(
        "vm-1", ("default", MARK), PLAIN, RealTime("2-3", "1Gi", "rt-network"), SOURCE
    ),
    "VM with a host device": realtime_machine(
        "vm-1", ("default", MARK), PLAIN, RealTime("2-3", "1Gi", "", "nic"), SOURCE
    ),
    "imported image": manifests.golden_data_volume("image", "default", MARK, "docker://quay.example/a", DISK),
    "downloaded image": manifests.golden_data_volume("image", "default", MARK, "https://a.example/b", DISK),
    "canary": manifests.clone_data_volume("canary", "default", MARK, DISK, SOURCE),
    "snapshot": manifests.volume_snapshot("image", "default", MARK, seed.SNAPSHOT_CLASS, "image"),
    "source": manifests.data_source("image", "default", MARK, "image"),
    "namespace": manifests.namespace("rendered", MARK),
    **{
        obj["kind"]: obj for obj in manifests.clone_permission("clone", "default", MARK, "vms")
    },
    **{
        f"heartbeat {kind}": manifests.heartbeat(kind, "beat", "default", MARK)
        for kind in ("VirtualMachine", "VirtualMachineInstance", "Pod", "PersistentVolumeClaim")
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def world(controlled: State, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    store = str(tmp_path_factory.mktemp("rendered"))
    apply.request(controlled, "POST", "/api/v1/namespaces/default/serviceaccounts", ACCOUNT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(controlled.kubeconfig))
        with open_world(WorldSpec(run_id=RUN, store=store, cluster=CONTEXT, schemas=TABLES)) as opened:
            yield opened


ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
"""Nobody here makes the account that a pod has by default."""


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_rendered_is_accepted_strictly(world: World, name: str) -> None:
    made = world.run(world.cluster.create(RENDERED[name], dry_run=True))
    assert made["metadata"]["uid"]


def test_a_field_that_is_not_there_would_have_been_found(world: World) -> None:
    wrong = {**RENDERED["VM plain"], "spec": {**RENDERED["VM plain"]["spec"], "runStrategie": "Halted"}}
    with pytest.raises(ClusterError, match=r'unknown field "spec\.runStrategie"'):
        world.run(world.cluster.create(wrong, dry_run=True))


def profile(**changes: Any) -> Profile:
    places = {"namespace": VMS, "golden_namespace": f"{RUN}-golden"}
    return profile_of(stages=["deploy"], deploy={"batches": [4]}, **places, **changes)


def refusal(world: World, wanted: Profile) -> str:
    with pytest.raises(InvalidRun) as refused:
        world.run(preflight(world, wanted))
    return str(refused.value).removeprefix("cluster testbed: ")


WRONG = {
    "storage_class": "nope",
    "network": "lab/nope",
    "priority_class": "nope",
    "instance_type": "nope",
    "preference": "virtualmachinepreference/nope",
}
SOUGHT = {
    "storage class": "nope",
    "snapshot class": "nope",
    "vm.network": "NetworkAttachmentDefinition lab/nope",
    "vm.priority_class": "PriorityClass nope",
    "vm.instance_type": "VirtualMachineClusterInstancetype nope",
    "vm.preference": f"VirtualMachinePreference {VMS}/nope",
}


def test_each_name_that_is_not_there_is_refused_and_named(world: World) -> None:
    said = refusal(world, profile(vm=WRONG, golden_image={"snapshot_class": "nope"}))
    assert said.startswith(f"storage class: nope, there is {seed.STORAGE_CLASS}")
    failed = {row["name"]: row["needed"] for row in rows(world, "checks", "all") if row["status"] == "failed"}
    assert {name: failed.get(name) for name in SOUGHT} == SOUGHT


def own(old: str = "", new: str = "") -> dict[str, Any]:
    """The keys of `[vm]` for a manifest that names nothing which is not there."""
    manifest = yaml.safe_load(OWN.replace(old, new).replace("priorityClassName: low", "hostname: db"))
    manifest["spec"]["template"]["spec"]["networks"] = [{"name": "lan", "pod": {}}]
    sized = {"cores": 4, "memory_gib": 4.0, "disk_gib": 30, "access_mode": "ReadWriteOnce"}
    return {"manifest": manifest, **sized}


def test_a_manifest_of_the_users_own_passes_preflight(world: World) -> None:
    assert world.run(preflight(world, profile(vm=own())))["failed"] == 0


def test_what_a_manifest_says_wrongly_is_refused_with_the_servers_reason(world: World) -> None:
    said = refusal(world, profile(vm=own("capacity: 1Gi", "capacity: a lot")))
    assert said.startswith(f"dry run of VirtualMachine: accepted, create VirtualMachine {RUN}-preflight: ")
    assert "volumes[1].emptyDisk.capacity" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nodeSelector: {pool: vms}", "nodeSelektor: {pool: vms}", "unknown field"),
        ("nodeSelector: {pool: vms}", "terminationGracePeriodSeconds: soon", "must be of type integer"),
    ],
)
def test_a_manifests_mistakes_are_told_as_the_server_words_them(
    world: World, old: str, new: str, said: str
) -> None:
    machine = machine_of(profile(vm=own(old, new)))
    made = manifests.virtual_machine("vm-1", "default", MARK, machine, SOURCE)
    with pytest.raises(ClusterError, match=said):
        world.run(world.cluster.create(made, dry_run=True))


def test_names_that_are_there_pass(world: World, controlled: State) -> None:
    group = "instancetype.kubevirt.io/v1beta1"
    sizes = {"cpu": {"guest": 2}, "memory": {"guest": "4Gi"}}
    cluster_wide = {"metadata": {"name": "there"}}
    wanted: list[Object] = [
        {"apiVersion": group, "kind": "VirtualMachineClusterInstancetype", **cluster_wide, "spec": sizes},
        {"apiVersion": group, "kind": "VirtualMachineClusterPreference", **cluster_wide, "spec": {}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **cluster_wide, "value": -1},
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "there", "namespace": "default"},
            "spec": {"config": "{}"},
        },
    ]
    for obj in wanted:
        world.run(world.cluster.create(obj))
    named = {"instance_type": "there", "preference": "there", "priority_class": "there"}
    shape = {**named, "network": "default/there", "cores": 2, "memory_gib": 4.0}
    assert world.run(preflight(world, profile(vm=shape)))["failed"] == 0
    said = refusal(world, profile(vm=named))
    assert said.startswith("vm.instance_type: 1 vCPUs, 2 GiB as the profile says, there: 2 vCPUs, 4 GiB")
