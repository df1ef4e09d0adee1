"""PURE. Which two runs may be compared: the keys of their manifests that have to be equal."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

KEYS = {
    "world": "virtual, served, testbed or kubernetes",
    "versions": "of Kubernetes, KubeVirt and CDI; of a virtual cluster also its preset",
    "tuning": "what is in force, above all the rate limits of KubeVirt's components",
    "vm": "cores, memory, disk and network of a VM",
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
_NAMED = 3
"""So many differing values of one key are told; of the others the number."""


class Difference(NamedTuple):
    """A value that differs: its key, and its path in it, as `versions.kubevirt`."""

    key: str
    path: str
    baseline: str
    run: str


def differences(baseline: Mapping[str, Any], run: Mapping[str, Any]) -> list[Difference]:
    """Every value in which two manifests' `comparability` differ, by key.

    What only one of them knows differs, too.
    """
    return [found for key in KEYS for found in _of_key(key, baseline.get(key), run.get(key))]


def told(found: Iterable[Difference]) -> list[str]:
    """The first few differing values of each key: `storage_class differs (rbd, then cephfs)`."""
    return [text for _, of_key in groupby(found, lambda each: each.key) for text in _told(list(of_key))]


def _told(of_key: list[Difference]) -> Iterator[str]:
    for each in of_key[:_NAMED]:
        yield f"{each.path} differs ({each.baseline}, then {each.run})"
    if more := len(of_key[_NAMED:]):
        yield f"{of_key[0].key} differs in {more:,} more"


def unknown_keys(baseline: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """Keys that neither manifest knows: nobody can say whether they were equal."""
    return [key for key in KEYS if baseline.get(key) is None and run.get(key) is None and key != "faults"]


def refusal(names: tuple[str, str], found: Collection[Difference]) -> str:
    """One line that names every key that differs and what to do."""
    keys = ",".join(dict.fromkeys(difference.key for difference in found))
    return (
        f"run {names[1]} cannot be compared with {names[0]}: {', '.join(told(found))}; "
        f"choose another, or --allow {keys}"
    )


def _of_key(key: str, baseline: Any, run: Any) -> Iterator[Difference]:
    before, now = dict(_leaves(baseline, key)), dict(_leaves(run, key))
    absent = "none" if key == "faults" else ABSENT
    for path in dict.fromkeys([*before, *now]):
        then, after = before.get(path), now.get(path)
        if then != after:
            yield Difference(key, path, _shown(then, absent), _shown(after, absent))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}")
    else:
        yield path, value


def _shown(value: Any, absent: str) -> str:
    text = absent if value is None else str(value) or "none"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
