"""`virtscale cluster serve`: the virtual cluster in real time, for kubectl and other clients."""

import asyncio
import signal
from pathlib import Path

import click

from infra.cluster.virtual.description import Description, load_description
from infra.cluster.virtual.faults import load_faults
from infra.served import access
from infra.served.realtime import RealTimeLoop
from infra.served.server import Serving, serving

MOST_NODES = 1000


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; left out: a free one."
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; left out: one in the state folder, named when it is there.",
)
@click.option("--nodes", type=click.IntRange(1, MOST_NODES), help="Workers; left out: as the preset says.")
@click.option(
    "--preset", default="fast", show_default=True, help="preset or FILE.toml that describes the cluster"
)
@click.option("--faults", default="", help="file of faults to inject; their times count from the start")
def serve(port: int, kubeconfig: Path | None, nodes: int | None, preset: str, faults: str) -> None:
    """Serve the virtual cluster in real time as a Kubernetes API, until interrupted.

    Everything is in memory and goes with the process. The context is virtscale-served.
    """
    wanted = Serving(
        description=_sized(load_description(preset), nodes),
        kubeconfig=kubeconfig or access.default_kubeconfig(),
        port=port,
        faults=load_faults(faults),
    )
    with asyncio.Runner(loop_factory=RealTimeLoop) as runner:
        runner.run(_serve(wanted))
    click.echo("stopped", err=True)


def _sized(description: Description, nodes: int | None) -> Description:
    if nodes is None:
        return description
    return description.model_copy(update={"nodes": description.nodes.model_copy(update={"workers": nodes})})


async def _serve(wanted: Serving) -> None:
    """Run until a signal comes, or a controller dies."""
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with serving(wanted) as served:
        click.echo(f"export KUBECONFIG={wanted.kubeconfig}")
        click.echo(f"serving {served.address}, context {access.CONTEXT}; Ctrl-C ends it", err=True)
        waits = {
            asyncio.ensure_future(served.cluster.plane.failed()),
            asyncio.ensure_future(asked.wait()),
        }
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits - done:
            task.cancel()
        for task in done:
            task.result()
