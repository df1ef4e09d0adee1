"""`virtscale cluster`: clusters to measure that are not somebody's production."""

import asyncio

import click


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
    from infra.cluster.virtual.description import load_description
    from infra.cluster.virtual.faults import load_faults

    description, plan = load_description(preset), load_faults(faults)
    try:
        asyncio.run(_control(context, description, plan))
    except KeyboardInterrupt:
        click.echo("controllers stopped", err=True)


async def _control(context: str, description: object, plan: object) -> None:
    from infra.testbed.control import controllers

    async with controllers(context, description, plan):  # type: ignore[arg-type]
        click.echo(f"controllers ready on {context}", err=True)
        await asyncio.Event().wait()
