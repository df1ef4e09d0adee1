"""The workers: what the kubelet's settings make of them."""

import json
from hashlib import blake2b
from typing import Any

from infra.cluster.kinds import NODE
from infra.cluster.port import Object
from infra.cluster.virtual.description import Description, Rate
from infra.cluster.virtual.draws import Draws

CURRENT_CONFIG = "machineconfiguration.openshift.io/currentConfig"
DESIRED_CONFIG = "machineconfiguration.openshift.io/desiredConfig"
KUBELET = "virtual.virtscale.io/kubelet"
"""Annotation of a virtual node: the kubelet's settings in force, JSON; a real one serves them as configz."""

Settings = dict[str, Any]
AUTO_SIZING = "autoSizingReserved"


def default_settings(description: Description) -> Settings:
    """A kubelet's settings when nobody tunes it."""
    untuned = description.untuned
    return {
        AUTO_SIZING: False,
        "cpuManagerPolicy": "none",
        "kubeAPIBurst": untuned.kubelet.burst,
        "kubeAPIQPS": round(untuned.kubelet.qps),
        "maxPods": untuned.max_pods,
        "nodeStatusMaxImages": untuned.status_max_images,
        "nodeStatusUpdateFrequency": "10s",
        "podPidsLimit": 4096,
        "serializeImagePulls": False,
    }


def initial_settings(description: Description) -> Settings:
    """The settings that a described cluster starts with, where they are not the defaults."""
    nodes, kubelet = description.nodes, description.rates.kubelet
    said = {
        "kubeAPIBurst": kubelet.burst,
        "kubeAPIQPS": round(kubelet.qps),
        "maxPods": nodes.max_pods,
        "nodeStatusMaxImages": nodes.status_max_images,
    }
    default = default_settings(description)
    return {key: value for key, value in said.items() if value != default[key]}


def kubelet_rate(settings: Settings) -> Rate:
    """The kubelet's client limit."""
    return Rate(qps=settings["kubeAPIQPS"], burst=settings["kubeAPIBurst"])


def rendered_name(pool: str, settings: Settings, extra: object = ()) -> str:
    """The name of a pool's rendered configuration: equal content, equal name."""
    content = json.dumps([settings, extra], sort_keys=True).encode()
    return f"rendered-{pool}-{blake2b(content, digest_size=16).hexdigest()}"


def node_object(description: Description, draws: Draws, number: int) -> Object:
    """One worker as the described cluster has it."""
    name = f"worker-{number:03d}"
    settings = default_settings(description) | initial_settings(description)
    config = rendered_name("worker", settings)
    return {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "metadata": {
            "name": name,
            "labels": {
                "node-role.kubernetes.io/worker": "",
                "kubevirt.io/schedulable": "true",
                "kubernetes.io/hostname": name,
            },
            "annotations": {CURRENT_CONFIG: config, DESIRED_CONFIG: config, KUBELET: dumped(settings)},
        },
        "spec": {},
        "status": {
            **node_status(description, draws, name, settings),
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": description.kubernetes},
        },
    }


def dumped(settings: Settings) -> str:
    """Settings as the annotation holds them."""
    return json.dumps(settings, sort_keys=True)


def node_status(description: Description, draws: Draws, name: str, settings: Settings) -> Object:
    """What of a node's status depends on its kubelet: its room and the images it reports.

    Other pods' requests, and what the system reserves, are taken off the allocatable CPU and memory.
    """
    nodes = description.nodes
    spread = 1 + nodes.background_spread * (2 * draws.uniform("background cpu", name) - 1)
    auto = bool(settings[AUTO_SIZING])
    cpu = round(1000 * (nodes.cpu - nodes.background_cpu * spread - (reserved_cpu(nodes.cpu) if auto else 0)))
    memory_mib = round(1024 * (nodes.memory_gib - (reserved_gib(nodes.memory_gib) if auto else 0)))
    room = {
        "cpu": f"{cpu}m",
        "memory": f"{memory_mib}Mi" if auto else f"{nodes.memory_gib}Gi",
        "pods": str(settings["maxPods"]),
        "devices.kubevirt.io/kvm": str(nodes.kvm_devices),
    }
    capacity = {**room, "cpu": str(nodes.cpu), "memory": f"{nodes.memory_gib}Gi"}
    images = _images(description, draws, name, settings["nodeStatusMaxImages"])
    return {"capacity": capacity, "allocatable": room, "images": images}


def reserved_cpu(cpus: int) -> float:
    """autoSizingReserved, CPU: 0.06 and 0.012 a CPU, at least 0.5 (machine-config-operator)."""
    return max(0.5, 0.06 + 0.012 * cpus)


def reserved_gib(memory_gib: float) -> float:
    """autoSizingReserved, memory: 1 GiB of 8, 6 % of the next 120, 2 % above (machine-config-operator)."""
    return 1 + 0.06 * min(120.0, max(0.0, memory_gib - 8)) + 0.02 * max(0.0, memory_gib - 128)


def _images(description: Description, draws: Draws, name: str, limit: int) -> list[Object]:
    """The images a node reports: with a limit, the launcher's is among the largest only by chance."""
    nodes = description.nodes
    reported = limit < 0 or draws.uniform("launcher image reported", name) < limit / nodes.images
    launcher = {"names": ["virt-launcher"], "sizeBytes": round(nodes.image_gib * 2**30)}
    return [launcher] if reported else []
