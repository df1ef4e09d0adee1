"""The least that creates and observes VirtualMachines: aiohttp, json, one watch. Not virtscale.

The peer of `bench_api`: runs in a process of its own and prints what it measured as JSON. It knows no error
but a wrong status, lists nothing again, and asks the server to check nothing more than it does by itself.
"""

import asyncio
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

LABEL = "bench"
COLLECTION = "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines"
CREATED = 201


class Work(NamedTuple):
    """What a contender does: `n` VMs in `namespace`, `parallel` at a time, on the testbed of `folder`."""

    folder: str
    namespace: str
    n: int
    parallel: int


def work_of(arguments: list[str]) -> Work:
    """From the command line: FOLDER NAMESPACE N PARALLEL."""
    folder, namespace, n, parallel = arguments
    return Work(folder, namespace, int(n), int(parallel))


def virtual_machine(name: str, namespace: str) -> dict[str, Any]:
    """A halted VirtualMachine of 1.3 kB; nothing acts on it."""
    guest = {
        "domain": {
            "cpu": {"cores": 1},
            "memory": {"guest": "256Mi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "root", "dataVolume": {"name": f"{name}-root"}}],
    }
    disk = {"storage": {"resources": {"requests": {"storage": "1Gi"}}}, "source": {"blank": {}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: namespace}},
        "spec": {
            "runStrategy": "Halted",
            "dataVolumeTemplates": [{"metadata": {"name": f"{name}-root"}, "spec": disk}],
            "template": {"metadata": {"labels": {LABEL: namespace}}, "spec": guest},
        },
    }


def percentile_ms(values_s: list[float], percent: int) -> float:
    """A percentile of seconds, in milliseconds."""
    ordered = sorted(values_s)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 2)


def peak_rss_mib() -> float:
    """The largest resident memory of this program so far; getrusage would count in that of who started it."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


class Minimal:
    """One run: when each VM was asked for and when it was seen."""

    def __init__(self, session: aiohttp.ClientSession, work: Work) -> None:
        self._session = session
        self._work = work
        self._path = COLLECTION.format(work.namespace)
        self.sent_s: dict[str, float] = {}
        self.seen_s: dict[str, float] = {}
        self.watching = asyncio.Event()

    async def run(self) -> dict[str, float]:
        """Create all, see all."""
        async with self._session.get(self._path, params={"limit": "1"}) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        watch = asyncio.create_task(self._watch(version))
        await self.watching.wait()
        names = (f"vm-{i:05}" for i in range(self._work.n))
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(self._create_from(names) for _ in range(self._work.parallel)))
        await watch
        return {
            "wall_s": time.perf_counter() - began_s,
            "cpu_s": time.process_time() - began_cpu_s,
            "seen_p50_ms": percentile_ms([self.seen_s[name] - at for name, at in self.sent_s.items()], 50),
            "rss_mib": peak_rss_mib(),
        }

    async def _create_from(self, names: Iterator[str]) -> None:
        for name in names:
            self.sent_s[name] = time.perf_counter()
            async with self._session.post(
                self._path, json=virtual_machine(name, self._work.namespace)
            ) as answer:
                body = await answer.read()
                if answer.status != CREATED:
                    raise RuntimeError(f"{answer.status}: {body[:300]!r}")

    async def _watch(self, version: str) -> None:
        # A server may end any watch, so it is resumed.
        while len(self.seen_s) < self._work.n:
            query = {
                "watch": "1",
                "resourceVersion": version,
                "labelSelector": f"{LABEL}={self._work.namespace}",
            }
            async with self._session.get(self._path, params=query) as answer:
                self.watching.set()
                version = await self._events(answer, version)

    async def _events(self, answer: aiohttp.ClientResponse, version: str) -> str:
        rest = b""
        async for chunk in answer.content.iter_any():
            now_s = time.perf_counter()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(f"watch: {event['object']}")
                metadata = event["object"]["metadata"]
                version = metadata["resourceVersion"]
                if event["type"] == "ADDED":
                    self.seen_s[metadata["name"]] = now_s
            if len(self.seen_s) >= self._work.n:
                break
        return version


@asynccontextmanager
async def _session(work: Work) -> AsyncIterator[aiohttp.ClientSession]:
    folder = Path(work.folder)
    tls = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
    tls.load_cert_chain(folder / "pki" / "admin.crt", folder / "pki" / "admin.key")
    server = json.loads((folder / "state.json").read_text())["server"]
    connector = aiohttp.TCPConnector(ssl=tls, limit=work.parallel + 5)
    endless = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(server, connector=connector, timeout=endless) as session:
        yield session


async def _main(work: Work) -> dict[str, float]:
    async with _session(work) as session:
        return await Minimal(session, work).run()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(work_of(sys.argv[1:])))))
