"""A VirtualMachine manifest of the user's own: what it decides in a profile, and what we put into it."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.cli.profiles import as_toml
from infra.errors import ProfileError
from infra.manifests import CloudInit, Mark, Source, virtual_machine
from infra.own_manifest import reference
from tasks.profile import Profile, load_profile
from tasks.provisioning import machine_of
from tasks.run_manifest import manifest_sha256

OWN = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: golden
  namespace: elsewhere
  uid: 1234
  creationTimestamp: null
  labels: {team: db}
spec:
  running: true
  dataVolumeTemplates:
  - metadata: {name: golden-disk, annotations: {note: theirs}}
    spec:
      source: {pvc: {name: image, namespace: images}}
      storage:
        accessModes: [ReadWriteOnce, ReadWriteMany]
        resources: {requests: {storage: 30Gi}}
  template:
    metadata: {labels: {app: db}}
    spec:
      priorityClassName: low
      nodeSelector: {pool: vms}
      domain:
        cpu: {sockets: 2, cores: 2}
        memory: {guest: 4096Mi}
        devices:
          disks: [{name: disk, disk: {bus: scsi}}, {name: scratch, disk: {bus: virtio}}]
          interfaces: [{name: lan, bridge: {}}]
      networks: [{name: lan, multus: {networkName: lab/vlan7}}]
      volumes:
      - {name: disk, dataVolume: {name: golden-disk}}
      - {name: scratch, emptyDisk: {capacity: 1Gi}}
"""
MARK = Mark("t1", "secret", "boot", 4, 2)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "vm.yaml"
    path.write_text(OWN)
    return path


def loaded(path: Path, *sets: str) -> Profile:
    return load_profile("smoke", [f"vm.manifest={path}", *sets])


def rendered(profile: Profile, seed: CloudInit | None = None) -> dict[str, Any]:
    machine = machine_of(profile, seed)
    return virtual_machine("t1-b-0002", "vms", MARK, machine, Source("golden", "image"))


def test_a_manifest_decides_what_the_profile_counts_with(own: Path) -> None:
    shape = loaded(own).vm
    assert (shape.cores, shape.memory_gib, shape.disk_gib) == (4, 4.0, 30)
    assert (shape.access_mode, shape.network, shape.priority_class) == ("ReadWriteOnce", "lab/vlan7", "low")


def test_a_profile_that_holds_its_manifest_can_be_written_and_read(own: Path, tmp_path: Path) -> None:
    profile, path = loaded(own), tmp_path / "mine.toml"
    path.write_text(as_toml("smoke", [f"vm.manifest={own}"]))
    assert load_profile(str(path)) == profile


def test_only_name_marks_disk_source_and_halt_are_ours(own: Path) -> None:
    made, theirs = rendered(loaded(own)), yaml.safe_load(OWN)
    spec, disk = made["spec"], made["spec"]["dataVolumeTemplates"][0]
    assert made["metadata"] == {
        "name": "t1-b-0002",
        "namespace": "vms",
        "labels": {"team": "db", **MARK.labels},
        "annotations": MARK.annotations,
    }
    assert disk["metadata"]["name"] == "t1-b-0002-root"
    assert disk["metadata"]["annotations"]["note"] == "theirs"
    assert disk["spec"]["sourceRef"] == {"kind": "DataSource", "name": "image", "namespace": "golden"}
    assert "source" not in disk["spec"]
    assert disk["spec"]["storage"]["accessModes"] == ["ReadWriteOnce", "ReadWriteMany"]
    assert (spec["runStrategy"], "running" in spec) == ("Halted", False)
    assert spec["template"]["metadata"]["labels"] == {"app": "db", **MARK.labels}
    inner, kept = spec["template"]["spec"], theirs["spec"]["template"]["spec"]
    assert inner["volumes"][0] == {"name": "disk", "dataVolume": {"name": "t1-b-0002-root"}}
    assert {**inner, "volumes": None} == {**kept, "volumes": None}


def test_the_address_comes_as_a_disk_of_its_own_and_the_manifest_stays_as_it_is(own: Path) -> None:
    profile = loaded(own)
    before = copy.deepcopy(profile.vm.manifest)
    inner = rendered(profile, CloudInit("#cloud-config", "version: 2"))["spec"]["template"]["spec"]
    assert [disk["name"] for disk in inner["domain"]["devices"]["disks"]] == ["disk", "scratch", "seed"]
    assert inner["volumes"][-1]["cloudInitNoCloud"]["networkData"] == "version: 2"
    assert profile.vm.manifest == before


def test_the_manifest_is_part_of_what_makes_runs_comparable(own: Path) -> None:
    assert manifest_sha256(loaded(own).vm.manifest) != manifest_sha256({})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("VirtualMachine\n", "Pod\n", "is no VirtualMachine of kubevirt.io/v1"),
        ("kubevirt.io/v1\n", "{\n", "vm.yaml: while parsing"),
        ("      storage:\n", "      pvc:\n", "says nothing of spec.storage in its dataVolumeTemplate"),
        ("{name: golden-disk}}", "{name: other}}", "has no volume of dataVolume golden-disk"),
        ("storage: 30Gi", "storage: a lot", "a lot is no size in Mi, Gi or Ti"),
        ("storage: 30Gi", "storage: 1500Mi", "its disk has 1500Mi, which is no whole number of Gi"),
        ("      domain:\n", "      domian:\n", "has no spec.template.spec.domain"),
    ],
)
def test_a_manifest_that_no_vm_can_be_made_of_is_refused(own: Path, old: str, new: str, said: str) -> None:
    own.write_text(OWN.replace(old, new, 1))
    with pytest.raises(ProfileError) as refused:
        loaded(own)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_profile_that_contradicts_its_manifest_is_refused(own: Path) -> None:
    with pytest.raises(ProfileError, match=r"cores is 8, the manifest says 4: leave it out"):
        loaded(own, "vm.cores=8")
    with pytest.raises(ProfileError, match=r"vm\.manifest nowhere\.yaml: cannot be read"):
        loaded(Path("nowhere.yaml"))


def test_one_vm_has_one_cloud_init(own: Path) -> None:
    own.write_text(OWN + "      - {name: seed, cloudInitNoCloud: {userData: '#cloud-config'}}\n")
    assert loaded(own).vm.disk_gib == 30
    with pytest.raises(ProfileError, match=r"vm\.manifest has a cloud-init volume, and guests\.path ssh"):
        loaded(own, "guests.path=ssh")


def test_an_instance_type_brings_the_sizes_and_a_preference_the_devices() -> None:
    profile = load_profile(
        "smoke", ["vm.instance_type=u1.medium", "vm.preference=virtualmachinepreference/rhel"]
    )
    spec = rendered(profile)["spec"]
    assert spec["instancetype"] == {"kind": "VirtualMachineClusterInstancetype", "name": "u1.medium"}
    assert spec["preference"] == {"kind": "VirtualMachinePreference", "name": "rhel"}
    domain = spec["template"]["spec"]["domain"]
    assert set(domain) == {"devices"}
    assert domain["devices"]["disks"] == [{"name": "root", "disk": {}, "bootOrder": 1}]
    assert domain["devices"]["interfaces"] == [{"name": "default", "masquerade": {}}]


def test_the_instance_type_of_a_manifest_is_the_profiles(own: Path) -> None:
    given = yaml.safe_load(OWN)
    given["spec"]["instancetype"] = reference("instancetype", "virtualmachineinstancetype/small")
    del given["spec"]["template"]["spec"]["domain"]["cpu"]
    own.write_text(yaml.safe_dump(given))
    profile = loaded(own)
    assert profile.vm.instance_type == "virtualmachineinstancetype/small"
    assert rendered(profile)["spec"]["instancetype"] == given["spec"]["instancetype"]
