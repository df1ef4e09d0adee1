"""One boot storm on the served cluster, for `bench_served`: settings and result are JSON.

The stage as a run takes it, in a process of its own. Of every watch event of the storm it notes how long it
took from its receipt (before parsing) until the observer's handlers had noted it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from infra.cluster.port import WatchBatch
from infra.served.access import CONTEXT
from infra.world import World, WorldSpec, open_world
from tasks import boot_storm
from tasks.observing import Observers
from tasks.profile import Profile
from tasks.records import TABLES
from tests.benchmarks.bench_api_minimal import percentile_ms

RUN_ID = "bench"
LIMIT_S = 3600.0


@dataclass
class Storm:
    """What was noted of the storm itself: its events, and how long it took."""

    server: int
    handled_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note it; the served cluster is asked for its account when it begins and when it is over."""
        told, start_vms = Observers._told, boot_storm.start_vms

        def timed(observers: Observers, stream: Any, notice: Any) -> None:
            told(observers, stream, notice)
            if type(notice) is WatchBatch:
                took_s = (time.monotonic_ns() - notice.received_ns) / 1e9
                self.handled_s += [took_s] * len(notice.events)

        async def bracketed(world: World, profile: Profile, boots: boot_storm.Boots) -> float:
            self.handled_s.clear()
            os.kill(self.server, signal.SIGUSR1)
            began_s = time.monotonic()
            gap_s = await start_vms(world, profile, boots)
            self.wall_s = time.monotonic() - began_s
            os.kill(self.server, signal.SIGUSR1)
            return gap_s

        with patch.object(Observers, "_told", timed), patch.object(boot_storm, "start_vms", bracketed):
            yield


def profile_of(vms: int) -> Profile:
    """A storm of so many, as fast as they are taken; the brakes, which look at a busy machine, stay off."""
    sections = {"deploy": {"limit_s": LIMIT_S}, "boot": {"batches": [vms], "limit_s": LIMIT_S}}
    return Profile.model_validate({"name": RUN_ID, "brakes": {"active": False}, **sections})


def main(vms: int, store: str, server: int) -> dict[str, Any]:
    """Boot them, and say what came out."""
    storm = Storm(server)
    with (
        storm.noted(),
        open_world(WorldSpec(run_id=RUN_ID, store=store, cluster=CONTEXT, schemas=TABLES)) as world,
    ):
        summary = world.run(boot_storm.boot_batch(world, profile_of(vms), vms))
    return {
        "n_ok": summary["n_ok"],
        "verdict": summary["verdict"],
        "wall_s": storm.wall_s,
        "events": len(storm.handled_s),
        **{f"p{percent}_ms": percentile_ms(storm.handled_s, percent) for percent in (50, 99, 100)},
    }


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
