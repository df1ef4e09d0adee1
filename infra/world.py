"""The world of a run: cluster, guests, clock and results, opened and closed together.

Every stage opens its own world (the command line and a Prefect task alike), so a stage that is
retried in another process starts from the same state: the virtual cluster's state is loaded from
the newest commit of its lineage: the run's preparations and the stage's own batches.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import pyarrow as pa

from infra.clock import Clock, MonotonicClock
from infra.cluster.kinds import CONFIG_MAP, KUBEVIRT, VMI
from infra.cluster.port import Cluster, Ref, Scope
from infra.cluster.virtual.description import Description, load_description
from infra.cluster.virtual.faults import load_faults
from infra.cluster.virtual.runtime import VirtualCluster
from infra.errors import ClusterError, Forbidden, GuestError, NotFound
from infra.guests.none import NoGuests
from infra.guests.port import Guests
from infra.guests.programs.io import IoPrograms
from infra.guests.programs.latency import LatencyPrograms
from infra.guests.ssh.folder import key_folder
from infra.guests.ssh.settings import SshSettings, stated_address
from infra.guests.virtual import VirtualGuests
from infra.manifests import run_selector
from infra.results.manifest import nonce_of
from infra.results.open import open_store, spool_folder
from infra.results.port import Results
from infra.results.run_results import open_results
from infra.settings import is_own_cluster
from infra.workers import Shard, Workers

if TYPE_CHECKING:
    from infra.cluster.real.adapter import KubernetesCluster

T = TypeVar("T")
WorldName = Literal["virtual", "served", "testbed", "kubernetes"]
WORLD_MARK = Ref(CONFIG_MAP, "kube-system", "virtscale-world")
"""Left by `virtscale cluster control` and `serve`: a cluster whose KubeVirt is our virtual controllers."""


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What to open. `cluster` is `virtual`, `virtual:PRESET`, `virtual:FILE.toml` or a kubeconfig context.

    `schemas` are the tables that results may be added to; none is enough to look around. `lineage` names
    the stages whose commits a virtual cluster goes on from, empty: all. `guests` says how those of a live
    cluster are reached; None: they are not. `nonce` is known already to who works for another process.
    """

    run_id: str
    store: str
    cluster: str = "virtual:study"
    seed: int = 1
    faults: str = ""
    background_pods: int = 0
    lineage: frozenset[str] = frozenset()
    guests: SshSettings | None = None
    nonce: str = ""
    schemas: Mapping[str, pa.Schema] = field(default_factory=dict)

    @property
    def is_virtual(self) -> bool:
        """Whether the cluster is a model in this process."""
        return self.cluster == "virtual" or self.cluster.startswith("virtual:")


class Runtime(Protocol):
    """Owns the event loop that a world lives on."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end; Ctrl-C cancels the coroutine, which cleans up and then raises."""
        ...

    def state(self) -> bytes:
        """The virtual cluster's state, to be stored with a commit; empty for every other world."""
        ...

    def measures(self, stage: str, batch: int, attempt: int) -> None:
        """A batch is released now: deploy, delete, boot or stop, its size, which attempt."""
        ...

    def measured(self) -> None:
        """The batch is over."""
        ...

    def counted(self, from_ns: int, to_ns: int) -> Iterable[tuple[str, int, float]] | None:
        """What the cluster tells of itself between two moments: (what, ns, amount); None: it does not tell.

        `lock_aborts` (1 each), `client_throttled_s` (at the beginning of the clock's second).
        """
        ...


class LiveRuntime:
    """A stock event loop, for clusters that live outside this process."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end on the machine's own time."""
        return self._runner.run(coroutine)

    def state(self) -> bytes:
        """The cluster keeps its own state."""
        return b""

    def measures(self, stage: str, batch: int, attempt: int) -> None:
        """Nobody injects faults into a live cluster."""

    def measured(self) -> None:
        """Nothing was injected."""

    def counted(self, from_ns: int, to_ns: int) -> None:
        """A live cluster does not tell."""


@dataclass(frozen=True)
class World:
    """What a stage works with. Durations come from `clock`, and from nowhere else.

    `workers` take shares of measured batches; `shard` says which share this process has.
    """

    name: WorldName
    run_id: str
    versions: dict[str, str]
    cluster: Cluster
    guests: Guests
    clock: Clock
    results: Results
    runtime: Runtime
    known_nonce: str = ""
    workers: Workers | None = None
    shard: Shard | None = None

    @cached_property
    def nonce(self) -> str:
        """The run's secret mark: annotation `virtscale.io/nonce` of every object that is ours; read once."""
        return self.known_nonce or nonce_of(self.results.store, self.run_id)

    def observed(self, stage: str = "") -> str:
        """Label selector of what this process observes: the run's objects, of its share if it has one."""
        return run_selector(self.run_id, stage, self.shard.slots if self.shard else ())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one stage coroutine on this world's event loop."""
        return self.runtime.run(coroutine)


def description_of(cluster: str) -> Description:
    """The description behind `virtual`, `virtual:PRESET` or `virtual:FILE.toml`."""
    return load_description(cluster.partition(":")[2] or "study")


@contextmanager
def open_world(spec: WorldSpec) -> Iterator[World]:
    """Open the world that `spec` names; closes everything, whatever happens.

    Raises:
        ClusterError: unknown context, unreachable API server, unreadable cluster description.
        StoreError: the store cannot be used.
        ProfileError: the faults file is wrong.
    """
    opened = _virtual(spec) if spec.is_virtual else _live(spec)
    with opened as world:
        yield world


def _results(spec: WorldSpec, world: WorldName, clock: Clock) -> Results:
    store = open_store(spec.store)
    results = open_results(store, spec.run_id, world, spec.schemas, spool_folder(store, spec.run_id))
    results.lineage, results.wall = spec.lineage if spec.is_virtual else frozenset(), clock.wall
    return results


@contextmanager
def _virtual(spec: WorldSpec) -> Iterator[World]:
    description = description_of(spec.cluster)
    inside = VirtualCluster(description, spec.seed, load_faults(spec.faults))
    results = _results(spec, "virtual", inside.server.clock)
    guests = _virtual_guests(inside, spec.seed)
    try:
        inside.open(results.last_state(), spec.background_pods)
        yield World(
            name="virtual",
            run_id=spec.run_id,
            versions={
                "kubernetes": description.kubernetes,
                "kubevirt": description.kubevirt,
                "cdi": description.cdi,
                "preset": description.name,
            },
            cluster=inside.client,
            guests=guests,
            clock=inside.server.clock,
            results=results,
            runtime=inside,
        )
    finally:
        inside.close()
        results.close()


def _virtual_guests(inside: VirtualCluster, seed: int) -> VirtualGuests:
    machines, loop, description = inside.plane.machines, inside.loop, inside.description
    guests = VirtualGuests(machines, loop, description.guest, description.probing)
    latency = LatencyPrograms(machines, loop, description.latency, inside.plane.draws)
    guests.programs.update(latency.programs)
    guests.programs.update(IoPrograms(machines, inside.server.clock, description, seed).programs)
    guests.before_use = latency.catch_up
    return guests


@contextmanager
def _live(spec: WorldSpec) -> Iterator[World]:
    # Imported here: the HTTP client is large, and a virtual cluster does without.
    from infra.cluster.real.adapter import connect

    with asyncio.Runner() as runner:
        cluster = runner.run(connect(spec.cluster))
        try:
            name, versions = runner.run(_look_around(cluster))
            clock = MonotonicClock()
            with (
                closing(_results(spec, name, clock)) as results,
                _live_guests(spec, cluster, runner) as guests,
            ):
                yield World(
                    name=name,
                    run_id=spec.run_id,
                    versions=versions,
                    cluster=cluster,
                    guests=guests,
                    clock=clock,
                    results=results,
                    runtime=LiveRuntime(runner),
                    known_nonce=spec.nonce,
                )
        finally:
            runner.run(cluster.close())


@contextmanager
def _live_guests(spec: WorldSpec, cluster: "KubernetesCluster", runner: asyncio.Runner) -> Iterator[Guests]:
    if spec.guests is None:
        yield NoGuests()
        return
    settings = replace(spec.guests, in_pod=is_own_cluster(cluster.server))
    from infra.guests.ssh.adapter import SshGuests

    async def find(vm: str) -> str:
        try:
            found = await cluster.get(Ref(VMI, settings.namespace, vm))
        except ClusterError as error:
            raise GuestError(f"guest {vm}: {error}") from error
        return stated_address(settings, found.get("status") or {})

    guests = SshGuests(settings, key_folder(spec.run_id), find)
    try:
        yield guests
    finally:
        runner.run(guests.close())


async def _look_around(cluster: "KubernetesCluster") -> tuple[WorldName, dict[str, str]]:
    """Which world a context leads to, and the versions it says."""
    versions = {"kubernetes": cluster.version}
    try:
        found = await cluster.list(Scope(KUBEVIRT), limit=1)
        for kubevirt in found.items:
            versions["kubevirt"] = kubevirt.get("status", {}).get("observedKubeVirtVersion", "unknown")
    except (NotFound, Forbidden):
        versions["kubevirt"] = "unknown"
    try:
        mark = await cluster.get(WORLD_MARK)
    except (NotFound, Forbidden):
        return "kubernetes", versions
    return ("served" if mark["data"]["world"] == "served" else "testbed"), versions
