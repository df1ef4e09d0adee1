"""Who uses the virtual cluster's Ceph at the same time, and what each of them got out of it."""

from dataclasses import dataclass

import numpy as np

from infra.clock import Clock
from infra.cluster.virtual.capacity import SharedCapacity
from infra.cluster.virtual.ceph import Images, Work, generator, solve_parts
from infra.cluster.virtual.ceph_latency import GRID_US
from infra.cluster.virtual.storage import Ceph

GIB = 1024**3
_EDGES = np.concatenate([[0.0], GRID_US])
MIDDLES_NS: list[int] = [int(ns) for ns in np.rint((_EDGES[1:] + _EDGES[:-1]) * 500.0)]
"""The latency that a cell of the grid stands for, ns."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Latencies of one client: (ns, how often), ascending."""

    counts: list[tuple[int, int]]


@dataclass(slots=True)
class Client:
    """One image in use; `histogram` is known once its population has been solved."""

    image: str
    work: Work
    measured_s: float
    histogram: Histogram | None = None


def fill_bytes_per_s(ceph: Ceph) -> float:
    """What large writes of any number of clients get in all: devices and wires, less the copies."""
    return min(ceph.osds * ceph.media_gib_per_s, ceph.hosts * ceph.host_gib_per_s) / ceph.replicas * GIB


class CephClients:
    """The storage of one virtual cluster.

    Clients of the same pattern and block size that overlap are solved together, at the moment when
    the first of them ends; different kinds of work do not feel each other.
    """

    def __init__(self, ceph: Ceph, clock: Clock, seed: int) -> None:
        self._ceph = ceph
        self._clock = clock
        self._seed = seed
        self._images = Images(ceph, seed)
        self._active: dict[tuple[str, int], dict[str, Client]] = {}
        self._filling = SharedCapacity(clock, fill_bytes_per_s(ceph), ceph.client_gib_per_s * GIB)

    async def fill(self, amount: int) -> None:
        """Write so many bytes as fast as all who fill at the same time allow."""
        await self._filling.use(float(amount))

    def join(self, image: str, work: Work, measured_s: float) -> Client:
        """An image is used from now on; it will be measured for so many seconds."""
        client = Client(image, work, measured_s)
        self._active.setdefault((work.pattern, work.block_bytes), {})[image] = client
        return client

    def leave(self, client: Client) -> Histogram:
        """The image is not used any more: what was measured."""
        population = self._active[client.work.pattern, client.work.block_bytes]
        if client.histogram is None:
            self._solve(list(population.values()))
        population.pop(client.image, None)
        if client.histogram is None:
            raise AssertionError(f"{client.image} was not among the clients that were solved")
        return client.histogram

    def drop(self, client: Client) -> None:
        """The image is not used any more, and nobody wants to know."""
        self._active[client.work.pattern, client.work.block_bytes].pop(client.image, None)

    def _solve(self, clients: list[Client]) -> None:
        clients = sorted(clients, key=lambda client: client.image)
        first, images = clients[0], [client.image for client in clients]
        parts = range(max(1, round(first.measured_s / self._ceph.busy_part_s)))
        places = [self._images.places(images, part) for part in parts]
        solution = solve_parts(self._ceph, [client.work for client in clients], places)
        measured_s = np.array([client.measured_s for client in clients])
        totals = np.floor(solution.per_s * measured_s + 1e-6).astype(np.int64)
        random = generator(self._seed, "latencies", first.image, str(self._clock.now_ns()))
        drawn = random.multinomial(totals, solution.shares)
        for client, row in zip(clients, drawn, strict=True):
            if client.histogram is None:
                at = np.flatnonzero(row)
                cells, counts = at.tolist(), row[at].tolist()
                pairs = [(MIDDLES_NS[i], n) for i, n in zip(cells, counts, strict=True)]
                client.histogram = Histogram(pairs)
