"""One virtual cluster on its own event loop: opened from a saved state, run, saved, closed."""

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from hashlib import blake2b
from typing import Any, Self, TypeVar, cast

from infra.cluster.kinds import NODE, kind_of
from infra.cluster.port import Cluster, Object, ref_of
from infra.cluster.virtual.api import ApiServer
from infra.cluster.virtual.assembly import add_controllers, add_operators, add_subresources, initial_objects
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.description import Description, Rate
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.faults import FaultPlan, Faults, Moment
from infra.cluster.virtual.limits import SECOND_NS
from infra.cluster.virtual.loop import new_loop
from infra.cluster.virtual.platform_objects import platform_objects
from infra.cluster.virtual.saved_state import packed, unpacked
from infra.cluster.virtual.store import Store
from infra.cluster.virtual.weather import ExposedClient, PatientClient, Weather, ready

T = TypeVar("T")
_LATEST: dict[bytes, dict[str, Any]] = {}
"""The newest state of this process by its digest: the next stage need not parse 40 MB again.

Whoever opens it takes it out: what a stage replaces must not be kept alive until it ends.
"""
SETTLE_S = 60.0
"""Controllers look at everything there is when they start; a stage finds them idle."""


class VirtualCluster:
    """The virtual world's runtime: `client` is the run's own, `server` and `plane` the inside."""

    def __new__(cls, *_: object) -> Self:
        """Before anything of a new one exists, itself included: what is frozen is never freed."""
        _forget_closed_clusters()
        return super().__new__(cls)

    def __init__(self, description: Description, seed: int, faults: FaultPlan) -> None:
        self.description = description
        self.loop = new_loop()
        self._runner = asyncio.Runner(loop_factory=lambda: self.loop)
        self.server = ApiServer(self.loop, description, seed)
        self._draws = Draws(seed)
        self.plane = ControlPlane(
            self._client_of_controllers if faults.fault else self.server.client,
            self.server.clock,
            description,
            self._draws,
            Faults(faults, self._draws),
        )
        self.client: Cluster = self.server.client()
        self._weather: Weather | None = None
        if faults.fault:
            self._weather = Weather(self.server, self.plane, self._draws)
            self.client = ExposedClient(self.server.client(), self._weather)

    def _client_of_controllers(self, rate: Rate) -> Cluster:
        return cast(Cluster, PatientClient(self.server.client(rate), lambda: self._weather))

    def open(self, state: bytes | None, background_pods: int = 0) -> None:
        """Start from a saved state, or from a fresh cluster, and let the controllers settle."""
        if state:
            saved = _LATEST.pop(_digest(state), None) or unpacked(state)
            self.loop.now_ns = saved["now_ns"]
            self.server.store.load(saved["store"])
            self.plane.machines.load(saved["disks"])
            self.plane.machines.load_running(saved.get("running", []))
        else:
            seed_objects(
                self.server.store,
                [
                    *initial_objects(self.description, self._draws, background_pods),
                    *platform_objects(self.description),
                ],
                self.server.stamp(),
            )
        if state and self._weather is not None:
            # what a fault did to nodes ends with the process in which it did it
            for _, node in self.server.store.objects(NODE):
                ready(self.server, node, "True")
        self._runner.run(self._start())

    async def _start(self) -> None:
        self.provisioner = add_controllers(self.plane)
        add_operators(self.plane)
        add_subresources(self.server, self.plane)
        await self.plane.start()
        await self.server.clock.sleep(SETTLE_S)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on virtual time; Ctrl-C cancels it."""
        return self._runner.run(coroutine)

    def measures(self, stage: str, batch: int, attempt: int) -> None:
        """A measured batch is released: what the fault plan has for it begins."""
        if self._weather is not None:
            self._weather.measures(Moment(stage, batch, attempt))

    def measured(self) -> None:
        """The measured batch is over."""
        if self._weather is not None:
            self._weather.measured()

    def counted(self, from_ns: int, to_ns: int) -> Iterator[tuple[str, int, float]]:
        """Restores that a locked snapshot aborted, and how long calls were held back by their clients."""
        for ns in self.provisioner.lock.aborted_ns:
            if from_ns <= ns <= to_ns:
                yield "lock_aborts", ns, 1
        for second, wait_ns in self.server.waits.items():
            since_ns = second * SECOND_NS
            if from_ns - SECOND_NS < since_ns <= to_ns:
                yield "client_throttled_s", max(since_ns, from_ns), wait_ns / SECOND_NS

    def state(self) -> bytes:
        """Everything a later opening needs, as it is stored."""
        saved = {
            "now_ns": self.loop.now_ns,
            "store": self.server.store.dump(),
            "disks": self.plane.machines.dump(),
            "running": self.plane.machines.dump_running(),
        }
        body = packed(saved)
        _LATEST.clear()
        _LATEST[_digest(body)] = saved
        return body

    def close(self) -> None:
        """Stop the controllers and the loop."""
        self._runner.run(self.plane.stop())
        self._runner.close()
        gc.enable()
        # whoever still holds a piece of this cluster must not hold 100s of MiB with it
        self.server.clear()


def _digest(state: bytes) -> bytes:
    return blake2b(state, digest_size=16).digest()


def _forget_closed_clusters() -> None:
    """Free what was open before, and let the collector never look again at what is alive now.

    A closed cluster is one large cycle, which a single frozen object in it would keep for ever. While
    a cluster is open nothing is collected: the model makes no cycles but 100,000s of long-lived
    objects.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def seed_objects(store: Store, objects: list[Object], stamp: str) -> None:
    """Put objects into a store as they are, status included, at no cost."""
    for obj in objects:
        store.create(obj, stamp)
        if "status" in obj and kind_of(obj["apiVersion"], obj["kind"]).status_subresource:
            store.patch(ref_of(obj), {"status": obj["status"]}, "status")
