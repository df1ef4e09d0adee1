"""PURE. Which two runs may be compared: the keys of their manifests that have to be equal."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

KEYS = {
    "world": "virtual, served, testbed or kubernetes",
    "versions": "of Kubernetes, KubeVirt and CDI; of a virtual cluster also its preset",
    "tuning": "what is in force, above all the rate limits of KubeVirt's components",
    "vm": "cores, memory and disk of a VM",
    "vm_manifest_sha256": "everything else that the VM's manifest says",
    "golden_image": "address and size of what is imported",
    "golden_sources": "snapshots that the VMs are cloned from",
    "storage_class": "of the root disks",
    "volume_binding_mode": "of that storage class",
    "access_mode": "of the root disks",
    "volume_mode": "of the root disks",
    "namespaces": "that the VMs are in",
    "caller": "whose requests they were",
    "prober_path": "the way to a guest's SSH port",
    "end_points": "the step at which a deploy and a boot are over",
    "background_pods": "other pods that were put on the nodes",
    "workload": "sizes, order, pace and limits of what was measured",
    "faults": "that were injected",
}
"""Key to what it holds, in the order in which differences are told."""

ABSENT = "not known"
_SHOWN = 60


class Difference(NamedTuple):
    """Values of one key that differ; `path` is the first leaf that does, as `versions.kubevirt`."""

    key: str
    path: str
    baseline: str
    run: str

    def told(self) -> str:
        """`storage_class differs (rbd, then cephfs)`."""
        return f"{self.path} differs ({self.baseline}, then {self.run})"


def differences(baseline: Mapping[str, Any], run: Mapping[str, Any]) -> list[Difference]:
    """The keys of two manifests' `comparability` that differ; what only one of them knows differs, too."""
    return [found for key in KEYS for found in _first(key, baseline.get(key), run.get(key))]


def unknown_keys(baseline: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """Keys that neither manifest knows: nobody can say whether they were equal."""
    return [key for key in KEYS if baseline.get(key) is None and run.get(key) is None and key != "faults"]


def refusal(names: tuple[str, str], found: Collection[Difference]) -> str:
    """One line that names every key that differs and what to do."""
    keys = ",".join(difference.key for difference in found)
    told = ", ".join(difference.told() for difference in found)
    return f"run {names[1]} cannot be compared with {names[0]}: {told}; choose another, or --allow {keys}"


def _first(key: str, baseline: Any, run: Any) -> Iterator[Difference]:
    if baseline == run:
        return
    before, now = dict(_leaves(baseline, key)), dict(_leaves(run, key))
    for path in [*before, *(path for path in now if path not in before)]:
        if before.get(path) != now.get(path):
            then, after = before.get(path), now.get(path)
            if key == "faults":
                then, after = then or "none", after or "none"
            yield Difference(key, path, _shown(then), _shown(after))
            return


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}")
    else:
        yield path, value


def _shown(value: Any) -> str:
    text = ABSENT if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
