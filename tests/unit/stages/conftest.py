"""A virtual world in a temporary store, and what tests ask of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.port import Cluster
from infra.results.read import Which, scan
from infra.world import World, WorldSpec, open_world
from tasks.profile import Profile
from tasks.records import TABLES

RUN = "t1"
OpenWorld = Callable[..., AbstractContextManager[World]]


def profile_of(**changes: Any) -> Profile:
    """A small profile; sections as dicts."""
    return Profile.model_validate(
        {"name": "test", "deploy": {"batches": [2]}, "boot": {"batches": [2]}, **changes}
    )


@pytest.fixture
def open_virtual(tmp_path: Path) -> OpenWorld:
    """Opens the run's world again and again, as tasks do; `faults` is TOML text."""

    @contextmanager
    def opened(faults: str = "", through: Callable[[Cluster], Cluster] | None = None) -> Iterator[World]:
        path = tmp_path / "faults.toml"
        path.write_text(faults)
        spec = WorldSpec(
            run_id=RUN,
            store=str(tmp_path / "store"),
            cluster="virtual:fast",
            faults=str(path) if faults else "",
            schemas=TABLES,
        )
        with open_world(spec) as world:
            yield replace(world, cluster=through(world.cluster)) if through else world

    return opened


def rows(world: World, table: str, which: Which = "last_complete") -> list[dict[str, Any]]:
    """Rows of a table, of the last complete attempts or of all."""
    return scan(world.results.store, world.run_id, table, TABLES[table], which).to_dicts()
