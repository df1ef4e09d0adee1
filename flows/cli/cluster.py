"""`virtscale cluster`: clusters to measure that are not somebody's production."""

import asyncio

import click

from infra.cluster.virtual.description import Description, load_description
from infra.cluster.virtual.faults import FaultPlan, load_faults
from infra.testbed.control import controllers


@click.group()
def cluster() -> None:
    """Bring up or drive a cluster for virtscale to measure."""


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
    try:
        asyncio.run(_control(context, description, plan))
    except KeyboardInterrupt:
        click.echo("controllers stopped", err=True)


async def _control(context: str, description: Description, plan: FaultPlan) -> None:
    async with controllers(context, description, plan) as plane:
        click.echo(f"controllers ready on {context}", err=True)
        await plane.failed()
