"""`virtscale cluster`: clusters to measure that are not somebody's production."""

import asyncio
import signal

import click

from flows.cli.cluster_serve import serve
from infra.cluster.virtual.description import Description, load_description
from infra.cluster.virtual.faults import FaultPlan, load_faults
from infra.testbed.control import controllers


@click.group()
def cluster() -> None:
    """Bring up or drive a cluster for virtscale to measure."""


cluster.add_command(serve)


@cluster.command()
@click.argument("context")
@click.option(
    "--preset", default="fast", show_default=True, help="preset or FILE.toml that describes the cluster"
)
@click.option("--faults", default="", help="file of faults to inject")
def control(context: str, preset: str, faults: str) -> None:
    """Let the virtual controllers act on a testbed's API server, until interrupted.

    CONTEXT is a testbed's (`make testbed-up`); KUBECONFIG must name its kubeconfig.
    """
    description, plan = load_description(preset), load_faults(faults)
    asyncio.run(_control(context, description, plan))
    click.echo("controllers stopped", err=True)


async def _control(context: str, description: Description, plan: FaultPlan) -> None:
    """Run until a signal comes: a shell starts background jobs with the interrupt ignored."""
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with controllers(context, description, plan) as plane:
        if not plane.description.openshift.operators:
            click.echo("without OpenShift's operators: its kinds are not served", err=True)
        click.echo(f"controllers ready on {context}", err=True)
        waits = {asyncio.ensure_future(plane.failed()), asyncio.ensure_future(asked.wait())}
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits - done:
            task.cancel()
        for task in done:
            task.result()
