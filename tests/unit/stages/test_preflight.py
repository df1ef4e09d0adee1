from typing import Any

import pytest

from infra import manifests
from infra.errors import Denied, InvalidRun
from infra.manifests import Mark
from tasks.capacity import fit, largest_batch
from tasks.nodes import quantity
from tasks.preflight import preflight
from tasks.provisioning import machine_of
from tests.unit.stages.conftest import OpenWorld, profile_of, rows
from tests.unit.stages.fakes import RefusingCluster

NEED = {"cpu": 0.1, "memory": 2.0 * 2**30, "pods": 1.0}


def test_a_fitting_run_passes_with_a_row_per_check(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        summary = world.run(preflight(world, profile_of()))
        checks = {row["name"]: row["status"] for row in rows(world, "checks")}
    assert summary["failed"] == 0
    assert checks["capacity"] == "ok"
    assert checks["dry run of VirtualMachine"] == "ok"
    assert set(checks.values()) <= {"ok", "skipped"}


def test_a_batch_beyond_the_cluster_names_the_limiting_resource(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        with pytest.raises(
            InvalidRun, match=r"6,000 VMs need .* are free on schedulable nodes.*lower deploy\.batches"
        ):
            world.run(preflight(world, profile_of(boot={"batches": [6000]})))
        commits = world.results.commits()
        failed = [row["name"] for row in rows(world, "checks", "all") if row["status"] == "failed"]
    assert [commit.complete for commit in commits] == [False]
    assert failed == ["capacity"]


def test_a_namespace_of_another_run_is_refused(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(world.cluster.create(manifests.namespace("virtscale", Mark("old", "x", "run"))))
        with pytest.raises(InvalidRun, match=r"namespace virtscale: .*run old.*virtscale clean old"):
            world.run(preflight(world, profile_of()))


def test_a_storage_class_that_does_not_exist_is_refused_with_those_that_do(open_virtual: OpenWorld) -> None:
    with (
        open_virtual() as world,
        pytest.raises(InvalidRun, match=r"nope.*there is ocs-.*set vm\.storage_class"),
    ):
        world.run(preflight(world, profile_of(vm={"storage_class": "nope"})))


def test_one_node_is_kept_to_spare() -> None:
    node = {"cpu": 10.0, "memory": 100 * 2.0**30, "pods": 10.0}
    assert fit(20, NEED, [node, node, node]).fits
    assert not fit(21, NEED, [node, node, node]).fits


def test_the_scarcest_resource_is_named_with_what_it_would_need() -> None:
    result = fit(
        6000,
        NEED,
        [{"cpu": 400.0, "memory": 9e15, "pods": 600.0}, {"cpu": 400.0, "memory": 9e15, "pods": 600.0}],
    )
    assert result.needed == "6,000 VMs need 6,000 pods"
    assert result.found.startswith("1,200 pods are free on schedulable nodes")


def test_largest_batch_counts_only_the_stages_of_the_profile() -> None:
    profile = profile_of(deploy={"batches": [5]}, boot={"batches": [9]}, stages=["deploy", "clean"])
    assert largest_batch(profile) == 5


@pytest.mark.parametrize(
    ("text", "number"), [("100m", 0.1), ("4", 4.0), ("2Gi", 2 * 2**30), ("1500", 1500.0)]
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize(
    ("key", "value", "sought"),
    [
        ("network", "lab/vlan7", "NetworkAttachmentDefinition lab/vlan7"),
        ("network", "vlan7", "NetworkAttachmentDefinition virtscale/vlan7"),
        ("priority_class", "low", "PriorityClass low"),
        ("instance_type", "u1.medium", "VirtualMachineClusterInstancetype u1.medium"),
        (
            "instance_type",
            "virtualmachineinstancetype/small",
            "VirtualMachineInstancetype virtscale/small",
        ),
        ("preference", "rhel.9", "VirtualMachineClusterPreference rhel.9"),
    ],
)
def test_a_name_of_the_profile_is_looked_up(
    open_virtual: OpenWorld, key: str, value: str, sought: str
) -> None:
    said = rf"vm\.{key}: {sought}, there is none of that name; set vm\.{key}, or make it"
    with open_virtual() as world, pytest.raises(InvalidRun, match=said):
        world.run(preflight(world, profile_of(vm={key: value})))


def test_the_second_nic_of_a_real_time_vm_is_looked_up_where_one_is_made(open_virtual: OpenWorld) -> None:
    said = r"latency\.sriov_network: NetworkAttachmentDefinition lab/fast, there is none of that name"
    latency = {"sriov_network": "lab/fast"}
    with open_virtual() as world, pytest.raises(InvalidRun, match=said):
        world.run(preflight(world, profile_of(stages=["preflight", "latency"], latency=latency)))
    with open_virtual() as world:
        world.run(preflight(world, profile_of(stages=["preflight", "boot"], latency=latency)))


def test_an_object_that_admission_denies_is_refused_in_its_own_words(open_virtual: OpenWorld) -> None:
    words = 'create VirtualMachine t1-preflight: 403 "t1-preflight" is forbidden: exceeded quota: vms'

    def refuse(verb: str, name: str) -> Exception | None:
        return Denied(words) if (verb, name) == ("create", "t1-preflight") else None

    with (
        open_virtual(through=lambda cluster: RefusingCluster(cluster, refuse)) as world,
        pytest.raises(InvalidRun, match=rf"dry run of VirtualMachine: accepted, {words}"),
    ):
        world.run(preflight(world, profile_of()))


def test_vms_carry_the_priority_class_of_the_profile() -> None:
    source, mark = manifests.Source("golden", "image"), Mark("r", "n", "boot")
    made = manifests.virtual_machine("vm", "ns", mark, machine_of(profile_of()), source)
    assert "priorityClassName" not in made["spec"]["template"]["spec"]
    low = machine_of(profile_of(vm={"priority_class": "low"}))
    made = manifests.virtual_machine("vm", "ns", mark, low, source)
    assert made["spec"]["template"]["spec"]["priorityClassName"] == "low"


def instance_type(cores: int, memory: str) -> dict[str, Any]:
    sizes = {"cpu": {"guest": cores}, "memory": {"guest": memory}}
    kind = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterInstancetype"}
    return {**kind, "metadata": {"name": "u1"}, "spec": sizes}


def test_what_an_instance_type_gives_is_what_the_profile_counts_with(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(world.cluster.create(instance_type(2, "4Gi")))
        with pytest.raises(
            InvalidRun,
            match=r"vm\.instance_type: 1 vCPUs, 2 GiB .* u1: 2 vCPUs, 4 GiB; set vm\.cores=2 and vm\.m",
        ):
            world.run(preflight(world, profile_of(vm={"instance_type": "u1"})))
        sized = {"instance_type": "u1", "cores": 2, "memory_gib": 4.0}
        assert world.run(preflight(world, profile_of(vm=sized)))["failed"] == 0
