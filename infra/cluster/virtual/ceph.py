"""Ceph as guests feel it: images spread over OSDs, queues at OSDs, three replicas, caches, sleeping CPUs.

A population of clients (one per image) is solved as a closed network of queues: each client has at
most `depth` requests on their way and may be paced; each OSD is one queue, its service from `Ceph`'s
constants. Approximate mean value analysis (Schweitzer) gives rates and waiting; distributions of
latency are those of the services, with an exponential wait where an OSD is busy. Nothing is fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from infra.cluster.virtual.ceph_latency import Front, Station, convolved, mean_us, sojourns
from infra.cluster.virtual.storage import Ceph

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
GIB = 1024**3
ROUNDS = 300
"""Rounds of the analysis at most; it ends when no queue moves by more than `STILL` of the longest."""
STILL = 1e-4
LEVELS = 16
"""OSDs that are about equally busy share one distribution of waiting."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one image is asked for.

    `per_s` is the paced rate, requests a second (0: none). `depth` requests at most are on their way,
    each followed by a pause of `pause_us`. `dataset_bytes` is what they are spread over.
    """

    pattern: str
    block_bytes: int
    per_s: float
    depth: int
    pause_us: float
    dataset_bytes: int


@dataclass(frozen=True, slots=True)
class Solution:
    """Of each client, in their order: requests a second, distribution of its latencies over the grid."""

    per_s: Floats
    shares: Floats


class Images:
    """Which OSDs the busy parts of each image lie on, drawn by its name: one part after the other."""

    def __init__(self, ceph: Ceph, seed: int) -> None:
        self._ceph = ceph
        self._seed = seed
        self._rows: dict[tuple[str, int], Counts] = {}

    def places(self, images: Sequence[str], part: int = 0) -> Counts:
        """One row per image: the OSDs among which its requests go, each as often as the others."""
        return np.stack([self._osds(image, part) for image in images])

    def _osds(self, image: str, part: int) -> Counts:
        found = self._rows.get((image, part))
        if found is None:
            each = min(self._ceph.osds_per_image, self._ceph.osds)
            found = generator(self._seed, "image", image, str(part)).permutation(self._ceph.osds)[:each]
            self._rows[image, part] = found
        return found


def generator(seed: int, *words: str) -> np.random.Generator:
    """Random numbers that depend on seed and words alone."""
    digest = blake2b("|".join(words).encode(), digest_size=16, key=str(seed).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def solve_parts(ceph: Ceph, work: Sequence[Work], places: Sequence[Counts]) -> Solution:
    """What clients get on the whole while one part of each image after the other is busy."""
    found = [solve(ceph, work, each) for each in places]
    shares = sum((each.per_s[:, None] * each.shares for each in found), np.zeros_like(found[0].shares))
    per_s = np.mean([each.per_s for each in found], axis=0)
    return Solution(per_s, shares / shares.sum(axis=1, keepdims=True))


def solve(ceph: Ceph, work: Sequence[Work], places: Counts) -> Solution:
    """What clients that do the same kind of work get, all at once; `places` is from `Images`."""
    kind = work[0]
    copies = ceph.replicas if kind.pattern == "write" else 1
    asked = np.array([each.per_s for each in work])
    depth = np.array([float(each.depth) for each in work])
    station = station_of(ceph, kind, missed(ceph, sum(each.dataset_bytes for each in work)))
    front_us = front_of(ceph, kind, len(work), 0.0).mean_us + kind.pause_us + station.delay_us
    limit = _ceiling(ceph, kind, copies, asked)
    demand = Demand(places, ceph.osds, copies, station.busy_us)
    rates, wait_us, busy = _rates(limit, depth, front_us, demand)
    front = front_of(ceph, kind, len(work), float(rates.sum()))
    shares = _latencies(front, station, demand, (wait_us, busy))
    whole_us = mean_us(shares) + kind.pause_us
    return Solution(np.minimum(rates, depth / whole_us * 1e6), shares)


def missed(ceph: Ceph, dataset_bytes: int) -> float:
    """Share of reads that the OSDs' memory does not answer: an object is read, and kept, at its primary."""
    cached = ceph.osds * ceph.osd_memory_gib * ceph.cache_share * GIB
    return max(0.0, 1.0 - cached / dataset_bytes) if dataset_bytes else 0.0


def station_of(ceph: Ceph, kind: Work, miss: float) -> Station:
    """An OSD: threads that hold a read to its end, a device that writes one after the other."""
    if kind.pattern == "read":
        held_us = ceph.read_cpu_us + miss * ceph.media_read_us
        parts = ((1.0 - miss, ceph.read_cpu_us), (miss, ceph.read_cpu_us + ceph.media_read_us))
        # Seidmann: n threads are one server n times as fast, and a delay of the rest
        return Station(held_us / ceph.op_threads, held_us * (1 - 1 / ceph.op_threads), parts, ceph.spread)
    bytes_us = kind.block_bytes / (ceph.media_gib_per_s * GIB) * 1e6
    device_us = ceph.device_writes * ceph.media_write_us + bytes_us
    served_us = ceph.write_cpu_us + device_us
    return Station(device_us, ceph.write_cpu_us, ((1.0, served_us),), ceph.spread)


def front_of(ceph: Ceph, kind: Work, clients: int, fleet_per_s: float) -> Front:
    """Client, network and whatever sleeps: what comes before and after the OSDs."""
    hops = 2 if kind.pattern == "write" else 1
    wire_us = kind.block_bytes / (ceph.node_gib_per_s * GIB) * 1e6
    extra: list[tuple[float, float]] = []
    if ceph.idle_reads == "wake-ups":
        for sleepers in (clients, ceph.hosts):
            extra.append((float(np.exp(-fleet_per_s / sleepers * ceph.idle_after_us / 1e6)), ceph.wake_us))
    elif ceph.idle_reads == "cold-caches" and kind.pattern == "read":
        objects = max(1, kind.dataset_bytes * clients // (4 * 1024**2))
        extra.append((float(np.exp(-fleet_per_s / objects * ceph.keep_s)), ceph.cold_us))
    return Front(ceph.client_us + hops * ceph.network_us + wire_us, ceph.spread, tuple(extra))


@dataclass(frozen=True, slots=True)
class Demand:
    """Who asks which OSD: `places` by client, `copies` of each request, `busy_us` of an OSD for each."""

    places: Counts
    osds: int
    copies: int
    busy_us: float

    def felt(self, of_osds: Floats) -> Floats:
        """A quantity of OSDs as each client meets it: the mean over its own."""
        return np.asarray(of_osds[self.places].mean(axis=1))

    def offered(self, rates: Floats) -> Floats:
        """Requests a second that reach each OSD, copies included."""
        each = self.places.shape[1]
        weights = np.repeat(rates * (self.copies / each), each)
        return np.asarray(np.bincount(self.places.ravel(), weights, self.osds), dtype=np.float64)


def _ceiling(ceph: Ceph, kind: Work, copies: int, asked: Floats) -> Floats:
    """Paced rates that the network of the storage hosts can carry, shared in proportion."""
    rates = np.where(asked > 0, asked, np.inf)
    carried = ceph.hosts * ceph.host_gib_per_s * GIB / (kind.block_bytes * copies)
    total = float(rates.sum())
    return (
        rates * min(1.0, carried / total) if np.isfinite(total) else np.minimum(rates, carried / len(rates))
    )


def _rates(limit: Floats, depth: Floats, front_us: float, demand: Demand) -> tuple[Floats, Floats, Floats]:
    """Rates of the clients, and of each OSD the mean wait (us) and the share of time it is busy."""
    busy_us = demand.busy_us
    # of parallel copies the slowest counts: between the mean of one and the sum of all
    slowest = sum(1.0 / k for k in range(1, demand.copies + 1))
    others = 1.0 - 1.0 / max(float(depth.sum()), 2.0)
    rates = np.minimum(limit, depth / (front_us + busy_us) * 1e6)
    queue = np.zeros(demand.osds)
    for _ in range(ROUNDS):
        stay_us = busy_us * (1.0 + queue * others)
        new = np.minimum(limit, depth / (front_us + slowest * demand.felt(stay_us)) * 1e6)
        rates, before = 0.5 * (rates + new), queue
        queue = 0.5 * (queue + demand.offered(rates) / 1e6 * stay_us)
        if np.max(np.abs(queue - before)) < STILL * (1.0 + float(queue.max())):
            break
    return rates, busy_us * queue, np.minimum(0.999, demand.offered(rates) / 1e6 * busy_us)


def _latencies(front: Front, station: Station, demand: Demand, state: tuple[Floats, Floats]) -> Floats:
    """Distribution of each client's latencies: its OSDs' sojourns, the slowest copy, the way there."""
    wait_us, busy = state
    groups = np.array_split(np.argsort(busy, kind="stable"), min(LEVELS, len(busy)))
    level_of = np.empty(len(busy), dtype=np.int64)
    for level, osds in enumerate(groups):
        level_of[osds] = level
    waits = np.array([float(wait_us[osds].mean()) for osds in groups])
    loads = np.array([float(busy[osds].mean()) for osds in groups])
    met = np.array([np.bincount(row, minlength=len(groups)) for row in level_of[demand.places]])
    stays = sojourns(station, waits, loads)
    return convolved((met / demand.places.shape[1] @ stays) ** demand.copies, front)
