"""Small objects that a real API server accepts."""

from typing import Any

Manifest = dict[str, Any]


def virtual_machine(name: str, namespace: str, strategy: str = "Halted") -> Manifest:
    volume = {"name": "root", "dataVolume": {"name": f"{name}-root"}}
    guest = {
        "domain": {"memory": {"guest": "256Mi"}, "devices": {"disks": [{"name": "root", "disk": {}}]}},
        "volumes": [volume],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "virtscale-test"}},
        "spec": {"runStrategy": strategy, "template": {"spec": guest}},
    }


def instance(name: str, namespace: str, phase: str) -> Manifest:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phase},
    }


def config_map(name: str, namespace: str, **entries: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "virtscale-test"}},
        "data": entries,
    }
