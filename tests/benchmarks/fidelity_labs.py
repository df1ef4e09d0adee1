"""The two labs whose figures are published: bare restores, and bare instances, on a virtual cluster.

Neither has VirtualMachines or DataVolumes, so neither goes through the stages: a client of the
virtual cluster asks for the objects and watches them, as the labs' own scripts did.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from infra.cluster.kinds import NODE, POD, PVC, SNAPSHOT, VMI
from infra.cluster.port import Cluster, Object, Scope, list_all
from infra.cluster.virtual.description import Description, described, load_description
from infra.cluster.virtual.faults import FaultPlan
from infra.cluster.virtual.limits import TokenBucket
from infra.cluster.virtual.runtime import VirtualCluster
from tests.benchmarks.fidelity_rows import Figure, Row, at_least, at_most, share_around
from tests.benchmarks.fidelity_study import changed_description

NAMESPACE = "default"
GOLDEN = "golden"
CLAIMS, VMIS = 120, 1000
QUICK = {"rates.virt_controller": {"qps": 400, "burst": 600}}
"""The better of the two settings that kubevirt#7879 compared; the preset has the other, 5/10."""
QUIET_S = 60.0
"""Between preparation and measurement: every client's bucket is full again."""


class CountedBucket(TokenBucket):
    """A token bucket that counts the calls that go through it."""

    def __init__(self, qps: float, burst: int) -> None:
        super().__init__(qps, burst)
        self.calls = 0

    def reserve(self, now_ns: int) -> int:
        """Take a token and count it."""
        self.calls += 1
        return super().reserve(now_ns)


@contextmanager
def virtual_cluster(description: Description, seed: int) -> Iterator[VirtualCluster]:
    """A fresh cluster, not opened yet; closed at the end."""
    cluster = VirtualCluster(description, seed, FaultPlan())
    try:
        yield cluster
    finally:
        cluster.close()


async def until(
    cluster: VirtualCluster, scope: Scope, reached: Callable[[Object], bool], n: int
) -> dict[str, int]:
    """Watch until `n` objects have reached a state; the observer's clock (ns) at which each was seen to."""
    seen: dict[str, int] = {}
    listed = await cluster.client.list(scope)
    now_ns = cluster.server.clock.now_ns()
    seen.update((obj["metadata"]["name"], now_ns) for obj in listed.items if reached(obj))
    if len(seen) >= n:
        return seen
    async with aclosing(cluster.client.watch(scope, listed.resource_version)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            for _, obj in batch.events:
                if reached(obj):
                    seen.setdefault(obj["metadata"]["name"], batch.received_ns)
            if len(seen) >= n:
                break
    return seen


def is_bound(claim: Object) -> bool:
    return bool(claim.get("status", {}).get("phase") == "Bound")


def is_ready(snapshot: Object) -> bool:
    return bool(snapshot.get("status", {}).get("readyToUse"))


def is_ready_instance(instance: Object) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in instance.get("status", {}).get("conditions") or ()
    )


def is_running(instance: Object) -> bool:
    return bool(instance.get("status", {}).get("phase") == "Running")


def claim(name: str, description: Description, snapshot: str = "") -> Object:
    """A PersistentVolumeClaim, bare: empty, or restored from a snapshot."""
    spec: Object = {
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block",
        "storageClassName": description.storage_class,
        "resources": {"requests": {"storage": "21Gi"}},
    }
    if snapshot:
        spec["dataSource"] = {
            "apiGroup": "snapshot.storage.k8s.io",
            "kind": "VolumeSnapshot",
            "name": snapshot,
        }
    meta = {"name": name, "namespace": NAMESPACE, "labels": {"lab": "restore" if snapshot else GOLDEN}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def snapshot_of_golden(name: str, description: Description) -> Object:
    spec = {
        "volumeSnapshotClassName": description.snapshot_class,
        "source": {"persistentVolumeClaimName": GOLDEN},
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": meta,
        "spec": spec,
    }


def instance(name: str) -> Object:
    """A VirtualMachineInstance, bare: its disk comes in a container image, so there is no volume."""
    spec = {
        "terminationGracePeriodSeconds": 0,
        "domain": {
            "cpu": {"cores": 1},
            "memory": {"guest": "128Mi"},
            "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
        },
        "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/cirros"}}],
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta, "spec": spec}


def restores_per_min(description: Description, seed: int, claims: int, snapshots: int) -> float:
    """Rate of `claims` restores asked for at once from `snapshots` snapshots: first request to last Bound."""
    with virtual_cluster(description, seed) as cluster:
        cluster.open(None)
        return cluster.run(_restores(cluster, claims, snapshots))


async def _restores(cluster: VirtualCluster, claims: int, snapshots: int) -> float:
    client, description, clock = cluster.client, cluster.description, cluster.server.clock
    await client.create(claim(GOLDEN, description))
    await until(cluster, Scope(PVC, NAMESPACE), is_bound, 1)
    names = [f"golden-{number}" for number in range(snapshots)]
    for name in names:
        await client.create(snapshot_of_golden(name, description))
    await until(cluster, Scope(SNAPSHOT, NAMESPACE), is_ready, snapshots)
    await clock.sleep(QUIET_S)
    asked_ns = clock.now_ns()
    wanted = [claim(f"restored-{i:04d}", description, names[i % snapshots]) for i in range(claims)]
    await asyncio.gather(*(client.create(each) for each in wanted))
    bound = await until(cluster, Scope(PVC, NAMESPACE, "lab=restore"), is_bound, claims)
    return claims / ((max(bound.values()) - asked_ns) / 60e9)


@dataclass(frozen=True)
class Launches:
    """`longest_s`: the longest request to Running; `calls_per_vmi`: virt-controller's, of every kind.

    `per_node`: instances of each node, the empty ones included.
    """

    longest_s: float
    calls_per_vmi: float
    per_node: list[int]


def launches(description: Description, seed: int, vmis: int) -> Launches:
    """Ask for `vmis` instances at the description's rate and wait until all run."""
    with virtual_cluster(description, seed) as cluster:
        counted = _count_calls(cluster, "virt_controller")
        cluster.open(None)
        longest_s, per_node = cluster.run(_launches(cluster, vmis))
        return Launches(longest_s, sum(bucket.calls for bucket in counted) / vmis, per_node)


def _count_calls(cluster: VirtualCluster, component: str) -> list[CountedBucket]:
    """Count the calls of a component's clients that are made from now on."""
    rates, buckets = cluster.plane.rates, list[CountedBucket]()
    make = rates.client

    def client(asked: str, instance: str = "", replicas: int = 1) -> Cluster:
        made: Any = make(asked, instance, replicas)
        if asked == component:
            rate, limits_on = rates.rate(asked, instance), cluster.description.limits_on
            made.bucket = CountedBucket(rate.qps * replicas if limits_on else 0, rate.burst * replicas)
            buckets.append(made.bucket)
        return made  # type: ignore[no-any-return]

    rates.client = client  # type: ignore[method-assign,assignment]
    return buckets


async def _launches(cluster: VirtualCluster, vmis: int) -> tuple[float, list[int]]:
    clock = cluster.server.clock
    asked_ns: dict[str, int] = {}

    async def ask(number: int) -> None:
        await clock.sleep(number / cluster.description.requests_per_s)
        name = f"vmi-{number:04d}"
        asked_ns[name] = clock.now_ns()
        await cluster.client.create(instance(name))

    asking = asyncio.gather(*(ask(number) for number in range(vmis)))
    running = await until(cluster, Scope(VMI, NAMESPACE), is_running, vmis)
    await asking
    await until(cluster, Scope(VMI, NAMESPACE), is_ready_instance, vmis)
    await clock.sleep(QUIET_S)
    longest_s = max(seen_ns - asked_ns[name] for name, seen_ns in running.items()) / 1e9
    return longest_s, await _per_node(cluster)


async def _per_node(cluster: VirtualCluster) -> list[int]:
    nodes = await list_all(cluster.client, Scope(NODE))
    pods = await list_all(cluster.client, Scope(POD, NAMESPACE))
    placed = Counter(pod["spec"]["nodeName"] for pod in pods.items)
    return [placed[node["metadata"]["name"]] for node in nodes.items]


def lab_rows(seed: int) -> list[Row]:
    """Presets `csi-lab` and `launch-lab` at full size, and what is left of them with a mechanism off."""
    return [*_restore_rows(seed), *_launch_rows(seed)]


def _restore_rows(seed: int) -> list[Row]:
    lab, source = load_description("csi-lab"), "ceph-csi#6516"
    what = f"{CLAIMS} restores"
    one = Figure(f"{what} from one snapshot", "34.6/min", source, "csi-lab")
    four = Figure(f"{what} from four snapshots", "100/min", source, "csi-lab")
    return [
        share_around(one, restores_per_min(lab, seed, CLAIMS, 1), 34.6, 0.10, "/min"),
        share_around(four, restores_per_min(lab, seed, CLAIMS, 4), 100.0, 0.10, "/min"),
    ]


def _launch_rows(seed: int) -> list[Row]:
    lab, source = load_description("launch-lab"), "kubevirt#7879"
    what = f"{VMIS:,} VMIs, longest request to Running, QPS/burst"
    slow = Figure(f"{what} 5/10", "22.7 min", source, f"launch-lab, {lab.requests_per_s:g} requests/s")
    fast = Figure(f"{what} 400/600", "25 s", source, f"launch-lab, {lab.requests_per_s:g} requests/s")
    throttled = launches(lab, seed, VMIS)
    quick = launches(described(changed_description("launch-lab", QUICK), "launch-lab"), seed, VMIS)
    return [
        share_around(slow, throttled.longest_s / 60, 22.7, 0.15, "min"),
        share_around(fast, quick.longest_s, 25.0, 0.15, "s"),
    ]


def lab_switch_rows(seed: int) -> list[Row]:
    """The labs with restore lock or client limits off."""
    lock = described(changed_description("csi-lab", {"csi.restore_lock": False}), "csi-lab")
    launched = described(changed_description("launch-lab", {"limits_on": False}), "launch-lab")
    one = Figure(f"{CLAIMS} restores from one snapshot", "34.6/min", "csi.restore_lock = false", "csi-lab")
    what = f"{VMIS:,} VMIs, longest request to Running, QPS/burst 5/10"
    launch = Figure(what, "22.7 min", "limits_on = false", "launch-lab")
    return [
        at_least(one, restores_per_min(lock, seed, CLAIMS, 1), 90.0, "/min"),
        at_most(launch, launches(launched, seed, VMIS).longest_s, 60.0, "s"),
    ]
