"""The world of a run: cluster, guests, clock and results, opened and closed together.

Every stage opens its own world (the command line and a Prefect task alike), so a stage that is
retried in another process starts from the same state: the virtual cluster's state is loaded from
the newest commit of the run.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from infra.clock import Clock
from infra.cluster.port import Cluster
from infra.guests.port import Guests
from infra.results.port import Results

T = TypeVar("T")
WorldName = Literal["virtual", "served", "testbed", "kubernetes"]


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What to open. `cluster` is `virtual`, `virtual:PRESET`, `virtual:FILE.toml` or a kubeconfig context."""

    run_id: str
    store: str
    cluster: str = "virtual:study"
    seed: int = 1
    faults: str = ""
    background_pods: int = 0


class Runtime(Protocol):
    """Owns the event loop that a world lives on."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end; Ctrl-C cancels the coroutine, which cleans up and then raises."""
        ...

    def state(self) -> bytes:
        """The virtual cluster's state, to be stored with a commit; empty for every other world."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What a stage works with. `nonce` marks our objects (annotation `virtscale.io/nonce`)."""

    name: WorldName
    run_id: str
    nonce: str
    versions: dict[str, str]
    cluster: Cluster
    guests: Guests
    clock: Clock
    results: Results
    runtime: Runtime

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one stage coroutine on this world's event loop."""
        return self.runtime.run(coroutine)


@contextmanager
def open_world(spec: WorldSpec) -> Iterator[World]:
    """Open the world that `spec` names; closes everything, whatever happens.

    Raises:
        ClusterError: unknown context, unreachable API server, unreadable cluster description.
        StoreError: the store cannot be used.
    """
    raise NotImplementedError(spec)
    yield
