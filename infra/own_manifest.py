"""PURE. A VirtualMachine manifest of the user's own: what it says, and what we put into it.

Only name, namespace, labels, annotations, the disk's source, its address (cloud-init) and that it is halted
are ours; whatever else it says is left as it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]
CLUSTER_KINDS = {
    "instancetype": "VirtualMachineClusterInstancetype",
    "preference": "VirtualMachineClusterPreference",
}
KINDS = {"instancetype": "VirtualMachineInstancetype", "preference": "VirtualMachinePreference"}
"""What KubeVirt calls the kinds of a VirtualMachine's two references; one without a kind is cluster-wide."""
GIB = {"Mi": 1 / 1024, "Gi": 1.0, "Ti": 1024.0}


def reference(field: str, text: str) -> Object:
    """The reference of a VirtualMachine: `NAME` is cluster-wide, `KIND/NAME` as virtctl takes it."""
    kind, _, name = text.rpartition("/")
    is_namespaced = kind == KINDS[field].lower()
    return {"kind": (KINDS if is_namespaced else CLUSTER_KINDS)[field], "name": name}


def problem(manifest: Mapping[str, Any]) -> str:
    """Why a manifest cannot be what VMs are made of; "" when it can."""
    if (manifest.get("apiVersion"), manifest.get("kind")) != ("kubevirt.io/v1", "VirtualMachine"):
        return "is no VirtualMachine of kubevirt.io/v1"
    spec = manifest.get("spec") or {}
    inner = (spec.get("template") or {}).get("spec") or {}
    if not inner.get("domain"):
        return "has no spec.template.spec.domain"
    templates = spec.get("dataVolumeTemplates") or []
    if len(templates) != 1:
        return f"has {len(templates)} dataVolumeTemplates; one is needed, for the disk that is cloned"
    if "storage" not in (templates[0].get("spec") or {}):
        return "says nothing of spec.storage in its dataVolumeTemplate (pvc is not enough)"
    name = (templates[0].get("metadata") or {}).get("name")
    if not any((volume.get("dataVolume") or {}).get("name") == name for volume in inner.get("volumes") or []):
        return f"has no volume of dataVolume {name}"
    return ""


def has_cloud_init(manifest: Mapping[str, Any]) -> bool:
    """Whether it brings a cloud-init of its own: there is place for one."""
    volumes = manifest["spec"]["template"]["spec"].get("volumes") or []
    return any(key.startswith("cloudInit") for volume in volumes for key in volume)


def stated(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a profile's `[vm]` that a manifest without a problem decides.

    Raises:
        ValueError: a size that is no whole number of GiB, or no size.
    """
    return {key: value for key, value in _stated(manifest["spec"]) if value not in (None, "")}


def _stated(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    inner = spec["template"]["spec"]
    domain, storage = inner["domain"], spec["dataVolumeTemplates"][0]["spec"]["storage"] or {}
    cpu, memory = domain.get("cpu") or {}, (domain.get("memory") or {}).get("guest")
    requests = (domain.get("resources") or {}).get("requests") or {}
    if cpu:
        yield "cores", cpu.get("cores", 1) * cpu.get("sockets", 1) * cpu.get("threads", 1)
    if memory or requests.get("memory"):
        yield "memory_gib", _gib(memory or requests["memory"])
    if size := ((storage.get("resources") or {}).get("requests") or {}).get("storage"):
        yield "disk_gib", _whole(size)
    yield "storage_class", storage.get("storageClassName")
    yield "access_mode", next(iter(storage.get("accessModes") or ()), None)
    yield "volume_mode", storage.get("volumeMode")
    networks = [(each.get("multus") or {}).get("networkName") for each in inner.get("networks") or ()]
    yield "network", next((name for name in networks if name), None)
    yield "priority_class", inner.get("priorityClassName")
    for field, key in (("instancetype", "instance_type"), ("preference", "preference")):
        yield key, _named(field, spec.get(field) or {})


def _named(field: str, given: Mapping[str, Any]) -> str:
    """The other way of `reference`."""
    kind, name = given.get("kind", ""), given.get("name", "")
    return f"{KINDS[field].lower()}/{name}" if kind == KINDS[field] else str(name)


def _gib(quantity: str) -> float:
    text = str(quantity)
    if text[-2:] in GIB and text[:-2].replace(".", "", 1).isdigit():
        return float(text[:-2]) * GIB[text[-2:]]
    raise ValueError(f"{text} is no size in Mi, Gi or Ti")


def _whole(quantity: str) -> int:
    size = _gib(quantity)
    if size != int(size):
        raise ValueError(f"its disk has {quantity}, which is no whole number of Gi")
    return int(size)


def marked(given: Mapping[str, Any] | None, ours: Mapping[str, Any]) -> Object:
    """Labels and annotations of both, ours on top; nothing else of the user's metadata is of use."""
    theirs = given or {}
    both = {key: {**(theirs.get(key) or {}), **ours[key]} for key in ("labels", "annotations")}
    return {**ours, **both}


def dressed(manifest: Mapping[str, Any], metadata: Object, root: Object, seed: Object | None) -> Object:
    """The manifest as a VM of ours: `metadata` and `root` (its DataVolume template) are the ones to set.

    `seed` is the cloud-init volume. Nothing of `manifest` is changed.
    """
    given = {key: value for key, value in manifest["spec"].items() if key != "running"}
    template, theirs = given["template"], given["dataVolumeTemplates"][0]
    storage = {**root["spec"]["storage"], **(theirs["spec"]["storage"] or {})}
    rest = {key: value for key, value in theirs["spec"].items() if key not in ("source", "pvc")}
    disk = {
        "metadata": marked(theirs.get("metadata"), root["metadata"]),
        "spec": {**rest, **root["spec"], "storage": storage},
    }
    labels = {key: metadata[key] for key in ("labels", "annotations")}
    names = (theirs["metadata"]["name"], root["metadata"]["name"])
    inner = _guest(template["spec"], names, seed)
    guest = {"metadata": marked(template.get("metadata"), labels), "spec": inner}
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": marked(manifest.get("metadata"), metadata),
        "spec": {**given, "runStrategy": "Halted", "dataVolumeTemplates": [disk], "template": guest},
    }


def _guest(inner: Mapping[str, Any], names: tuple[str, str], seed: Object | None) -> Object:
    """What is inside, its disk's DataVolume renamed, the cloud-init volume added."""
    old, new = names
    volumes = [
        {**volume, "dataVolume": {**volume["dataVolume"], "name": new}}
        if (volume.get("dataVolume") or {}).get("name") == old
        else volume
        for volume in inner["volumes"]
    ]
    if seed is None:
        return {**inner, "volumes": volumes}
    domain, devices = inner["domain"], inner["domain"].get("devices") or {}
    disks = [*(devices.get("disks") or []), {"name": seed["name"], "disk": {"bus": "virtio"}}]
    return {
        **inner,
        "domain": {**domain, "devices": {**devices, "disks": disks}},
        "volumes": [*volumes, seed],
    }
