"""Plain values to manifests: every object that virtscale creates is made here, marked as ours.

Pure functions. The run label is on everything, on VirtualMachine templates too, so that the
DataVolumes, claims, instances and pods that controllers derive carry it as well; the nonce is an
annotation, so nobody can own our objects by copying a label.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.cluster.port import Object
from infra.own_manifest import dressed, reference

RUN_LABEL = "virtscale.io/run"
STAGE_LABEL = "virtscale.io/stage"
BATCH_LABEL = "virtscale.io/batch"
INDEX_LABEL = "virtscale.io/index"
SLOT_LABEL = "virtscale.io/slot"
SLOTS = 64
"""A VM is in the slot of its index modulo this: who observes some VMs of a run watches their slots alone."""
NONCE = "virtscale.io/nonce"
LENT_LABEL = "virtscale.io/lent"
"""On a namespace of somebody else, "true": runs may use it, and leave it where it is."""
IMMEDIATE = "cdi.kubevirt.io/storage.bind.immediate.requested"
ROOT_DISK = "root"
SEED_DISK = "seed"


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose object it is: run, its secret nonce, stage; of a VM also which one of which batch.

    Of something else that is observed with the VMs of a slot: that slot.
    """

    run_id: str
    nonce: str
    stage: str
    batch: int | None = None
    index: int | None = None
    slot: int | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every object of ours."""
        slot = self.slot if self.index is None else slot_of(self.index)
        which = {BATCH_LABEL: self.batch, INDEX_LABEL: self.index, SLOT_LABEL: slot}
        numbers = {label: str(number) for label, number in which.items() if number is not None}
        return {RUN_LABEL: self.run_id, STAGE_LABEL: self.stage, **numbers}

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of every object of ours."""
        return {NONCE: self.nonce}


@dataclass(frozen=True, slots=True)
class Disk:
    """How a volume is asked for."""

    size_gib: int
    storage_class: str
    access_mode: str
    volume_mode: str

    @property
    def storage(self) -> Object:
        """The `storage` section of a DataVolume."""
        return {
            "storageClassName": self.storage_class,
            "accessModes": [self.access_mode],
            "volumeMode": self.volume_mode,
            "resources": {"requests": {"storage": f"{self.size_gib}Gi"}},
        }


@dataclass(frozen=True, slots=True)
class CloudInit:
    """What a guest reads at its first boot; `network_data` "": nothing is said about its network."""

    user_data: str
    network_data: str = ""

    @property
    def volume(self) -> Object:
        """The volume of a VirtualMachine that carries it."""
        network = {"networkData": self.network_data} if self.network_data else {}
        return {"name": SEED_DISK, "cloudInitNoCloud": {"userData": self.user_data, **network}}


@dataclass(frozen=True, slots=True)
class Machine:
    """The shape of a VirtualMachine; `network` names a NetworkAttachmentDefinition, "" is the pod network.

    With an `instance_type` its sizes are left to that, with a `preference` the models of its devices.
    `manifest` is one of the user's own, in which nothing but what is ours is replaced; {} is none.
    """

    cores: int
    memory_gib: float
    disk: Disk
    network: str = ""
    cloud_init: CloudInit | None = None
    priority_class: str = ""
    instance_type: str = ""
    preference: str = ""
    manifest: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """The DataSource that a disk is cloned from."""

    namespace: str
    name: str


def disk_name(vm: str) -> str:
    """Name of a VirtualMachine's DataVolume and claim."""
    return f"{vm}-{ROOT_DISK}"


def slot_of(index: int) -> int:
    """The slot of a VM."""
    return index % SLOTS


def run_selector(run_id: str, stage: str = "", slots: Sequence[int] = ()) -> str:
    """Label selector of a run's objects, of one stage if given, of VMs in these slots if given."""
    terms = [f"{RUN_LABEL}={run_id}"]
    if stage:
        terms.append(f"{STAGE_LABEL}={stage}")
    if slots:
        terms.append(f"{SLOT_LABEL} in ({','.join(map(str, slots))})")
    return ",".join(terms)


def memory_quantity(gib: float) -> str:
    """GiB as a Kubernetes quantity."""
    return f"{int(gib)}Gi" if gib == int(gib) else f"{round(gib * 1024)}Mi"


def _object(api_version: str, kind: str, metadata: Object, **rest: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _metadata(name: str, namespace: str, mark: Mark, **annotations: str) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, "labels": mark.labels, "annotations": {**mark.annotations, **annotations}}


def virtual_machine(name: str, namespace: str, mark: Mark, machine: Machine, source: Source) -> Object:
    """A halted VirtualMachine whose root disk is cloned from a DataSource."""
    if machine.manifest:
        seed = None if machine.cloud_init is None else machine.cloud_init.volume
        root, metadata = _root_template(name, mark, machine.disk, source), _metadata(name, namespace, mark)
        return dressed(machine.manifest, metadata, root, seed)
    named = {"instancetype": machine.instance_type, "preference": machine.preference}
    spec = {
        **{field: reference(field, text) for field, text in named.items() if text},
        "runStrategy": "Halted",
        "dataVolumeTemplates": [_root_template(name, mark, machine.disk, source)],
        "template": {
            "metadata": {"labels": mark.labels, "annotations": mark.annotations},
            "spec": _instance_spec(name, machine),
        },
    }
    return _object("kubevirt.io/v1", "VirtualMachine", _metadata(name, namespace, mark), spec=spec)


def _root_template(vm: str, mark: Mark, disk: Disk, source: Source) -> Object:
    annotations = {**mark.annotations, IMMEDIATE: "true"}
    return {
        "metadata": {"name": disk_name(vm), "labels": mark.labels, "annotations": annotations},
        "spec": {"sourceRef": _source_ref(source), "storage": disk.storage},
    }


def _source_ref(source: Source) -> Object:
    return {"kind": "DataSource", "name": source.name, "namespace": source.namespace}


def _instance_spec(vm: str, machine: Machine) -> Object:
    model, bus = ({}, {}) if machine.preference else ({"model": "virtio"}, {"bus": "virtio"})
    network, interface = _network(machine.network)
    seeds = [] if machine.cloud_init is None else [machine.cloud_init.volume]
    return {
        **({"priorityClassName": machine.priority_class} if machine.priority_class else {}),
        "evictionStrategy": "LiveMigrate",
        "terminationGracePeriodSeconds": 0,
        "domain": {
            **({} if machine.instance_type else _sizes(machine)),
            "devices": {
                "disks": [
                    {"name": ROOT_DISK, "disk": bus, "bootOrder": 1},
                    *({"name": seed["name"], "disk": bus} for seed in seeds),
                ],
                "interfaces": [{**interface, **model}],
            },
        },
        "networks": [network],
        "volumes": [{"name": ROOT_DISK, "dataVolume": {"name": disk_name(vm)}}, *seeds],
    }


def _sizes(machine: Machine) -> Object:
    return {
        "cpu": {"cores": machine.cores, "sockets": 1, "threads": 1},
        "memory": {"guest": memory_quantity(machine.memory_gib)},
    }


def _network(network: str) -> tuple[Object, Object]:
    if network:
        return {"name": "net", "multus": {"networkName": network}}, {"name": "net", "bridge": {}}
    return {"name": "default", "pod": {}}, {"name": "default", "masquerade": {}}


def golden_data_volume(name: str, namespace: str, mark: Mark, url: str, disk: Disk) -> Object:
    """The imported golden image; `url` is docker://... (a registry) or http(s)://..."""
    source = {"registry": {"url": url}} if url.startswith("docker://") else {"http": {"url": url}}
    metadata = _metadata(name, namespace, mark, **{IMMEDIATE: "true"})
    return _object(
        "cdi.kubevirt.io/v1beta1", "DataVolume", metadata, spec={"source": source, "storage": disk.storage}
    )


def clone_data_volume(name: str, namespace: str, mark: Mark, disk: Disk, source: Source) -> Object:
    """One clone of a DataSource without a VirtualMachine (the canary)."""
    metadata = _metadata(name, namespace, mark, **{IMMEDIATE: "true"})
    spec = {"sourceRef": _source_ref(source), "storage": disk.storage}
    return _object("cdi.kubevirt.io/v1beta1", "DataVolume", metadata, spec=spec)


def volume_snapshot(name: str, namespace: str, mark: Mark, snapshot_class: str, claim: str) -> Object:
    """A VolumeSnapshot of a claim."""
    spec = {"volumeSnapshotClassName": snapshot_class, "source": {"persistentVolumeClaimName": claim}}
    metadata = _metadata(name, namespace, mark)
    return _object("snapshot.storage.k8s.io/v1", "VolumeSnapshot", metadata, spec=spec)


def data_source(name: str, namespace: str, mark: Mark, snapshot: str) -> Object:
    """A DataSource that points at a VolumeSnapshot of the same namespace."""
    spec = {"source": {"snapshot": {"name": snapshot, "namespace": namespace}}}
    return _object("cdi.kubevirt.io/v1beta1", "DataSource", _metadata(name, namespace, mark), spec=spec)


def clone_permission(name: str, namespace: str, mark: Mark, vms_namespace: str) -> list[Object]:
    """Role and RoleBinding that let VirtualMachines of another namespace clone from this one.

    virt-controller asks for `create datavolumes/source` in the name of the service account
    `default` of the VM's namespace, and makes no DataVolume when that is denied.
    """
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"], "verbs": ["create"]}]
    account = {"kind": "ServiceAccount", "name": "default", "namespace": vms_namespace}
    role = _object(f"{group}/v1", "Role", _metadata(name, namespace, mark))
    binding = _object(f"{group}/v1", "RoleBinding", _metadata(name, namespace, mark))
    reference = {"apiGroup": group, "kind": "Role", "name": name}
    return [{**role, "rules": rules}, {**binding, "roleRef": reference, "subjects": [account]}]


def namespace(name: str, mark: Mark) -> Object:
    """A namespace of ours."""
    return _object("v1", "Namespace", _metadata(name, "", mark))


def heartbeat(kind: str, name: str, namespace: str, mark: Mark) -> Object:
    """An inert object that lets a watch of its kind be heard: nobody acts on any of them.

    A halted VM without disks, an instance whose claim never comes and which has no pod till then, a pod
    that is held by a scheduling gate, a claim that waits for a volume that never comes.
    """
    api_version = "kubevirt.io/v1" if kind.startswith("VirtualMachine") else "v1"
    return _object(api_version, kind, _metadata(name, namespace, mark), spec=_inert(kind, name))


def _inert(kind: str, name: str) -> Object:
    if kind == "Pod":
        gate, container = {"name": "virtscale.io/heartbeat"}, {"name": "none", "image": "none"}
        return {"schedulingGates": [gate], "containers": [container]}
    if kind == "PersistentVolumeClaim":
        resources = {"requests": {"storage": "1Mi"}}
        waits = {"storageClassName": "", "volumeName": f"{name}-none"}
        return {"accessModes": ["ReadWriteOnce"], "resources": resources, **waits}
    domain: Object = {"memory": {"guest": "64Mi"}, "devices": {}}
    if kind == "VirtualMachineInstance":
        domain["devices"] = {"disks": [{"name": "none", "disk": {"bus": "virtio"}}]}
        claim = {"claimName": f"{name}-none"}
        return {"domain": domain, "volumes": [{"name": "none", "persistentVolumeClaim": claim}]}
    return {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}}
