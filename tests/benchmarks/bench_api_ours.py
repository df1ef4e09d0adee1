"""The same work as `bench_api_minimal`, by virtscale's adapter and Reflector, in a process of its own."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from infra.clock import MonotonicClock
from infra.cluster.kinds import VM
from infra.cluster.port import Cluster, Scope
from infra.cluster.real.adapter import connect
from infra.cluster.reflector import Changed, Gap, Listed, Notice, Reflector
from infra.testbed.state import CONTEXT
from tests.benchmarks.bench_api_minimal import (
    LABEL,
    Work,
    peak_rss_mib,
    percentile_ms,
    virtual_machine,
    work_of,
)


class Ours:
    """One run: when each VM was asked for, seen, and noted."""

    def __init__(self, cluster: Cluster, work: Work) -> None:
        self._cluster = cluster
        self._work = work
        self._clock = MonotonicClock()
        self.sent_ns: dict[str, int] = {}
        self.seen_ns: dict[str, int] = {}
        self.handling_s: list[float] = []
        self.listed = asyncio.Event()
        self.all_seen = asyncio.Event()

    async def run(self) -> dict[str, float]:
        """Create all, see all."""
        scope = Scope(VM, self._work.namespace, f"{LABEL}={self._work.namespace}")
        observer = asyncio.create_task(self._observe(Reflector(self._cluster, scope, self._clock)))
        await self.listed.wait()
        names = (f"vm-{i:05}" for i in range(self._work.n))
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(self._create_from(names) for _ in range(self._work.parallel)))
        await observer
        seen_s = [(self.seen_ns[name] - at) / 1e9 for name, at in self.sent_ns.items()]
        return {
            "wall_s": time.perf_counter() - began_s,
            "cpu_s": time.process_time() - began_cpu_s,
            "seen_p50_ms": percentile_ms(seen_s, 50),
            "rss_mib": peak_rss_mib(),
            "handling_p99_ms": percentile_ms(self.handling_s, 99),
        }

    async def _create_from(self, names: Iterator[str]) -> None:
        for name in names:
            self.sent_ns[name] = self._clock.now_ns()
            await self._cluster.create(virtual_machine(name, self._work.namespace))

    async def _observe(self, reflector: Reflector) -> None:
        following = asyncio.ensure_future(reflector.follow(self._told))
        await self.all_seen.wait()
        following.cancel()

    def _told(self, notice: Notice) -> None:
        if isinstance(notice, Listed):
            self.listed.set()
        elif isinstance(notice, Gap):
            raise RuntimeError("nobody was looking for a while: this round compares nothing")
        else:
            self._note(notice)
            if len(self.seen_ns) >= self._work.n:
                self.all_seen.set()

    def _note(self, batch: Changed) -> None:
        for event in batch.events:
            if event.type == "ADDED":
                self.seen_ns[event.object["metadata"]["name"]] = batch.received_ns
                self.handling_s.append((self._clock.now_ns() - batch.received_ns) / 1e9)


async def _main(work: Work) -> dict[str, float]:
    cluster = await connect(CONTEXT, str(Path(work.folder) / "kubeconfig"))
    try:
        return await Ours(cluster, work).run()
    finally:
        await cluster.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(work_of(sys.argv[1:])))))
