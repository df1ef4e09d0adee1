"""`make bench-served`: 6,000 VMs boot on the served cluster, with ten more watchers on it.

`virtscale cluster serve` and the stage that boots are a process each. Two figures: how long a watch event
takes from its receipt to its record, and how much of a core the cluster's API part needs, its controllers not
counted.
"""

import asyncio
import base64
import json
import os
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import click
import yaml

from infra.cluster.kinds import VMI
from infra.cluster.real.requests import collection
from infra.errors import ClusterError, VirtscaleError
from tests.benchmarks.bench_figures import Figure, against_target, on_this_machine, show
from tests.benchmarks.prove_api import FAST, ROOM

CLUSTER, STORM = "tests.benchmarks.bench_served_cluster", "tests.benchmarks.bench_served_storm"
NODES = 129
NOTED_TARGET_MS = 50.0
API_TARGET_CORES = 1.0
ACCOUNTS = 2
"""One when the storm begins, one when it is over."""


class Served(NamedTuple):
    """The served cluster's process, and what it said since it serves."""

    process: asyncio.subprocess.Process
    kubeconfig: Path
    said: list[dict[str, float]]


@click.command()
@click.option("--vms", default=6000, show_default=True, help="VMs of the storm.")
@click.option("--watchers", default=10, show_default=True, help="Watches on all instances besides our own.")
def main(vms: int, watchers: int) -> None:
    """Measure the served cluster while VMs boot on it."""
    try:
        with on_this_machine(), tempfile.TemporaryDirectory() as folder:
            good = show(asyncio.run(_measured(Path(folder), vms, watchers)))
    except VirtscaleError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(0 if good else 1)


async def _measured(folder: Path, vms: int, watchers: int) -> list[Figure]:
    async with _serving(folder) as served:
        lines = [0] * watchers
        watching = [asyncio.create_task(_watch(served.kubeconfig, lines, i)) for i in range(watchers)]
        try:
            found = await _storm(folder, served, vms)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
    if len(served.said) != ACCOUNTS or found["n_ok"] != vms or min(lines, default=vms) < vms:
        raise ClusterError(f"no measurement: {found}, {served.said}, watchers read {lines} lines")
    return _figures(found, served.said, (vms, watchers, sum(lines)))


@asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[Served]:
    text = FAST.read_text()
    for there, wanted in ROOM.items():
        text = text.replace(there, wanted)
    preset, kubeconfig = folder / "cluster.toml", folder / "kubeconfig"
    preset.write_text(text)
    options = ["--preset", str(preset), "--nodes", str(NODES), "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", CLUSTER, *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    listening: asyncio.Task[None] | None = None
    try:
        first = await process.stderr.readline()
        if not first.startswith(b"serving"):
            raise ClusterError(f"nothing is served: {first.decode()}{(await process.stderr.read()).decode()}")
        served = Served(process, kubeconfig, [])
        listening = asyncio.create_task(_listen(process.stderr, served.said))
        yield served
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
        if listening is not None:
            await listening


async def _listen(stream: asyncio.StreamReader, said: list[dict[str, float]]) -> None:
    async for line in stream:
        if line.startswith(b"{"):
            said.append(json.loads(line))


async def _storm(folder: Path, served: Served, vms: int) -> dict[str, Any]:
    asked = {"vms": vms, "store": str(folder / "store"), "server": served.process.pid}
    storm = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", STORM, json.dumps(asked)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(served.kubeconfig)},
    )
    try:
        output, _ = await storm.communicate()
    finally:
        if storm.returncode is None:
            storm.kill()
    if storm.returncode:
        raise ClusterError(f"the storm ended with exit code {storm.returncode}")
    found: dict[str, Any] = json.loads(output)
    return found


async def _watch(kubeconfig: Path, lines: list[int], i: int) -> None:
    """Read and count what a watch on all instances says; one that ends is opened again."""
    document = yaml.safe_load(kubeconfig.read_text())
    (cluster,), (user,) = document["clusters"], document["users"]
    authority = cluster["cluster"]["certificate-authority-data"]
    tls = ssl.create_default_context()
    tls.load_verify_locations(cadata=base64.b64decode(authority).decode())
    headers = {"Authorization": f"Bearer {user['user']['token']}"}
    connector = aiohttp.TCPConnector(ssl=tls)
    url = f"{cluster['cluster']['server']}{collection(VMI, '')}?watch=true"
    no_limit = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=no_limit) as session:
        while True:
            async with session.get(url) as answer:
                async for chunk in answer.content.iter_any():
                    lines[i] += chunk.count(b"\n")


def _figures(found: dict[str, Any], said: list[dict[str, float]], what: tuple[int, int, int]) -> list[Figure]:
    (before, after), (vms, watchers, lines) = said, what
    api, process = ((after[key] - before[key]) / found["wall_s"] for key in ("api_s", "process_s"))
    storm = f"n 1, {vms:,} VMs booted in {found['wall_s']:.0f} s, verdict {found['verdict']}"
    events = f"{found['events']:,} events, p50 {found['p50_ms']:g} ms, max {found['p100_ms']:g} ms"
    more = f"{watchers} more watchers read {lines:,} lines; with store and controllers {process:.2f} cores"
    return [
        against_target(
            "served cluster: watch event received to noted, p99", found["p99_ms"], "ms", NOTED_TARGET_MS,
            f"{storm}; {events}",
        ),
        against_target(
            "served cluster: CPU of the API part", api, "cores", API_TARGET_CORES, f"{storm}; {more}"
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
