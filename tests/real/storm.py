"""`python -m tests.real.storm SPEC.json RESULT.json`: boot storms of one run, each measured as a stage of it.

A process of its own, so that what is done to its clock, its watches or its login is done to nobody else. The
result says when each storm was released (ns of the monotonic clock) and what it left of the process.
"""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from infra.clock import Clock, MonotonicClock
from infra.errors import VirtscaleError
from infra.testbed.state import CONTEXT
from infra.world import World, WorldSpec, open_world
from tasks.batch import Batch
from tasks.boot_storm import boot_batch
from tasks.profile import Profile
from tasks.records import TABLES


@dataclass(frozen=True)
class Spec:
    """Storms `first` and on, `storms` of them, of `size` VMs; `changes` are the profile's.

    `watch_s` is how long watches last, `clock_jump_s` how far the wall clock jumps in the middle.
    """

    store: str
    run_id: str
    size: int
    first: int = 1
    storms: int = 1
    watch_s: int = 290
    clock_jump_s: float = 0.0
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return f"{self.run_id}-vms"

    def profile(self) -> Profile:
        """Only boots, and limits that a storm of a slow machine bears."""
        named = {"namespace": self.namespace, "golden_namespace": f"{self.run_id}-golden"}
        quiet = {"limit_s": 120, "probe_ratio": 50}
        boot = {"batches": [self.size], "limit_s": 240, **self.changes.get("boot", {})}
        rest = {key: value for key, value in self.changes.items() if key != "boot"}
        return Profile.model_validate({"name": "storm", **named, "quiesce": quiet, "boot": boot, **rest})


def run(spec: Spec, result: Path) -> None:
    """All storms in one world; the result is written after each."""
    released: list[int] = []
    with _noted(released, released_mark(result)), _disturbed(spec), open_world(_world(spec)) as world:
        storms: list[dict[str, Any]] = []
        for repeat in range(spec.first, spec.first + spec.storms):
            storms.append(_storm(world, spec, repeat))
            assert released, storms[-1]["said"]
            storms[-1] |= {"released_ns": released[-1]}
            result.write_text(json.dumps({"storms": storms}))


def _world(spec: Spec) -> WorldSpec:
    return WorldSpec(run_id=spec.run_id, store=spec.store, cluster=CONTEXT, schemas=TABLES)


def _storm(world: World, spec: Spec, repeat: int) -> dict[str, Any]:
    said = ""
    try:
        world.run(boot_batch(world, spec.profile(), spec.size, repeat))
    except VirtscaleError as error:
        said = str(error)
    gc.collect()
    return {"repeat": repeat, "said": said, **left_of_it(world)}


def left_of_it(world: World) -> dict[str, Any]:
    """Memory, file descriptors and tasks of this process now."""

    async def tasks() -> int:
        return len(asyncio.all_tasks()) - 1

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_mib": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": world.run(tasks()),
    }


@contextmanager
def _noted(released: list[int], mark: Path) -> Iterator[None]:
    release = Batch.release

    def noted(self: Batch, clock: Clock, at_ns: int | None = None) -> None:
        release(self, clock, at_ns)
        if self.stage == "boot":
            released.append(self.released_ns)
            mark.touch()

    with patch.object(Batch, "release", noted):
        yield


@contextmanager
def _disturbed(spec: Spec) -> Iterator[None]:
    """Watches of another length; a wall clock that jumps once a storm has been released for two seconds."""
    began_ns: list[int] = []
    wall = MonotonicClock.wall
    release = Batch.release

    def jumped(self: MonotonicClock) -> datetime:
        is_late = began_ns and self.now_ns() - began_ns[0] > 2e9
        return wall(self) + timedelta(seconds=spec.clock_jump_s if is_late else 0.0)

    def noted(self: Batch, clock: Clock, at_ns: int | None = None) -> None:
        release(self, clock, at_ns)
        if self.stage == "boot":
            began_ns.append(self.released_ns)

    with (
        patch("infra.cluster.real.requests.WATCH_S", spec.watch_s),
        patch.object(MonotonicClock, "wall", jumped),
        patch.object(Batch, "release", noted),
    ):
        yield


def released_mark(result: Path) -> Path:
    """A file that is there once a storm has been released."""
    return result.with_suffix(".released")


def write(spec: Spec, file: Path) -> None:
    """A spec for the command line."""
    file.write_text(json.dumps(asdict(spec)))


if __name__ == "__main__":
    run(Spec(**json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
