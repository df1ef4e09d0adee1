"""Table `[cluster]` of a description: a cluster in a dozen keys that its owner knows by heart.

Each key stands for one or more constants of `description.py`; what is left out stays as in the study.
"""

import difflib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, Field

from infra.cluster.virtual.constants import constants
from infra.cluster.virtual.part import Part, Rate
from infra.errors import ProfileError

GIB_PER_GBIT = 1e9 / 8 / 2**30
OSD_GIB_PER_S = 0.25
"""What one OSD on NVMe gives to boots, GiB per second; assumption."""
WORKERS = 129
"""Workers of the study, when a file does not say how many there are."""
STORAGE = "guest.disk_gib_per_s"


class OwnCluster(Part):
    """A cluster as its owner knows it; every key may be left out."""

    nodes: int | None = Field(None, ge=1, le=10_000, description="workers that take VMs")
    cores: int | None = Field(None, ge=1, le=10_000, description="CPUs (hardware threads) of a worker")
    memory_gib: int | None = Field(None, ge=1, le=1_000_000, description="memory of a worker, GiB")
    max_pods: int | None = Field(None, ge=1, le=100_000, description="kubelet's maxPods, pods of a worker")
    nic_gbit_per_s: float | None = Field(
        None, gt=0, le=1e6, description="link of a worker to the storage, Gbit per second"
    )
    osds: int | None = Field(None, ge=3, le=100_000, description="OSDs of the Ceph cluster")
    osd_gib_per_s: float | None = Field(
        None,
        gt=0,
        le=1e3,
        description=f"what one OSD gives for long, GiB per second; left out: {OSD_GIB_PER_S}",
    )
    golden_sources: int | None = Field(
        None,
        ge=1,
        le=64,
        description="golden snapshots that VMs are cloned from; left out: as the profile says",
    )
    kubevirt: Rate | None = Field(
        None, description="QPS and burst of virt-api, virt-controller, virt-handler (HCO's rate limits)"
    )
    provisioner: Rate | None = Field(None, description="QPS and burst of external-provisioner")
    attacher: Rate | None = Field(None, description="QPS and burst of external-attacher")
    kubelet: Rate | None = Field(None, description="kubeAPIQPS and kubeAPIBurst")
    import_s: float | None = Field(None, le=1e6, description="import of the golden image, seconds")
    restore_s: float | None = Field(
        None, le=1e6, description="one clone from a snapshot while all others wait, seconds"
    )
    attach_s: float | None = Field(None, le=1e6, description="attaching one volume to a node, seconds")
    pod_start_s: float | None = Field(
        None, le=1e6, description="start of a virt-launcher pod, volumes attached, seconds"
    )
    boot_s: float | None = Field(None, le=1e6, description="firmware to sshd on one idle core, seconds")
    api_latency_s: float | None = Field(None, le=1e3, description="one API call on an idle cluster, seconds")


STANDS_FOR = {
    "nodes": ("nodes.workers",),
    "cores": ("nodes.cpu",),
    "memory_gib": ("nodes.memory_gib",),
    "max_pods": ("nodes.max_pods",),
    "osds": ("ceph.osds",),
    "golden_sources": ("golden_sources",),
    "kubevirt": ("rates.virt_api", "rates.virt_controller", "rates.virt_handler"),
    "provisioner": ("rates.provisioner",),
    "attacher": ("rates.attacher",),
    "kubelet": ("rates.kubelet",),
    "import_s": ("cdi_clone.import_s",),
    "restore_s": ("csi.restore_s",),
    "attach_s": ("attach.attach_s",),
    "pod_start_s": ("kubelet.start_s",),
    "boot_s": ("guest.boot_work_s",),
    "api_latency_s": ("api.latency_s",),
    "osd_gib_per_s": ("ceph.media_gib_per_s",),
}
"""Key of `[cluster]` to constants; links and OSDs are also the bandwidth that boots share."""


def spread_out(own: OwnCluster, values: dict[str, Any], where: str, model: type[BaseModel]) -> dict[str, Any]:
    """A file's values with table `[cluster]` as the constants of `model` that it stands for.

    Raises:
        ProfileError: a constant is given twice, or an assumption is named that is none.
    """
    spread = deepcopy({key: value for key, value in values.items() if key != "cluster"})
    for key, path, value in _constants_of(own, spread.get("nodes", {})):
        if not _put(spread, path, value):
            raise ProfileError(f"{where}: cluster.{key} and {path} say the same; leave one of them out")
    named = [path for each in values.get("assumptions", ()) for path in _named(each, where, model)]
    return {**spread, "assumptions": sorted({*named, *_guessed(own)})}


def constants_named(name: str, model: type[BaseModel]) -> tuple[str, ...]:
    """The constants behind a name that people use: `cluster.attach_s`, or the constant itself.

    Raises:
        KeyError: there is none of that name; the text says which is near.
    """
    known = [each for each, _ in constants(model)]
    short = {f"cluster.{key}": paths for key, paths in STANDS_FOR.items()}
    if name not in short and name not in known:
        near = difflib.get_close_matches(name, [*short, *known], 1, 0.5)
        raise KeyError(f"{name} is not a constant" + (f"; did you mean {near[0]}?" if near else ""))
    return short.get(name, (name,))


def _named(name: str, where: str, model: type[BaseModel]) -> tuple[str, ...]:
    try:
        return constants_named(name, model)
    except KeyError as error:
        raise ProfileError(f"{where}: assumptions: {error.args[0]}") from None


def _constants_of(own: OwnCluster, nodes: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """What the stated keys say, as (key of `[cluster]`, dotted constant, its value)."""
    for key, paths in STANDS_FOR.items():
        value = getattr(own, key)
        for path in paths if value is not None else ():
            yield key, path, value.model_dump() if isinstance(value, Rate) else value
    if own.nic_gbit_per_s is not None:
        yield "nic_gbit_per_s", "ceph.node_gib_per_s", round(own.nic_gbit_per_s * GIB_PER_GBIT, 3)
    storage = _storage_gib_per_s(own, own.nodes or nodes.get("workers", WORKERS))
    if storage is not None:
        yield "osds" if own.osds else "nic_gbit_per_s", STORAGE, storage


def _storage_gib_per_s(own: OwnCluster, workers: int) -> float | None:
    """GiB per second that all boots share: the OSDs', or the workers' links when they are narrower."""
    ceilings = []
    if own.osds is not None:
        ceilings.append(own.osds * (own.osd_gib_per_s or OSD_GIB_PER_S))
    if own.nic_gbit_per_s is not None:
        ceilings.append(workers * own.nic_gbit_per_s * GIB_PER_GBIT)
    return round(min(ceilings), 3) if ceilings else None


def _guessed(own: OwnCluster) -> tuple[str, ...]:
    """Constants that a stated key sets by way of an assumption of ours."""
    return (STORAGE,) if own.osds is not None and own.osd_gib_per_s is None else ()


def _put(values: dict[str, Any], path: str, value: Any) -> bool:
    """Set a dotted constant in nested tables; False when it is there already."""
    *tables, name = path.split(".")
    for each in tables:
        values = values.setdefault(each, {})
    if name in values:
        return False
    values[name] = value
    return True
