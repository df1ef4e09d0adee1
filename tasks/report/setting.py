"""PURE. What was measured, in two lines below the title: the VMs, and the limits in force."""

from collections.abc import Iterator, Mapping
from typing import Any


def setting(manifest: Mapping[str, Any]) -> list[str]:
    """The VM and where its disk is, how it is cloned and probed, the rate limits; only what is known."""
    keys: Mapping[str, Any] = manifest.get("comparability") or {}
    lines = (_machine(keys), _limits(keys), _injected(keys))
    return [", ".join(parts) for parts in map(list, lines) if parts]


def _machine(keys: Mapping[str, Any]) -> Iterator[str]:
    vm = keys.get("vm") or {}
    if {"cores", "memory_gib", "disk_gib"} <= set(vm):
        cores = "1 core" if vm["cores"] == 1 else f"{vm['cores']} cores"
        yield f"VMs of {cores}, {vm['memory_gib']:g} GiB memory and a disk of {vm['disk_gib']:g} GiB"
    if keys.get("storage_class"):
        modes = (keys.get(name) for name in ("access_mode", "volume_mode", "volume_binding_mode"))
        yield f"storage class {keys['storage_class']} ({', '.join(map(str, filter(None, modes)))})"
    if keys.get("golden_sources"):
        yield f"cloned from {_counted(keys['golden_sources'], 'snapshot')}"
    if keys.get("background_pods"):
        yield f"beside {_counted(keys['background_pods'], 'pod')} of ours"


def _limits(keys: Mapping[str, Any]) -> Iterator[str]:
    rates = (keys.get("tuning") or {}).get("rates") or {}
    if not rates:
        return
    if len(set(rates.values())) == 1:
        yield f"KubeVirt's client limits (queries a second/burst): {next(iter(rates.values()))}"
    else:
        told = ", ".join(f"{name} {rate}" for name, rate in rates.items())
        yield f"KubeVirt's client limits (queries a second/burst): {told}"


def _injected(keys: Mapping[str, Any]) -> Iterator[str]:
    if keys.get("faults"):
        yield "faults were injected"


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
