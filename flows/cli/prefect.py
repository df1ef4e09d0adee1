"""`virtscale prefect`: Prefect in operation on this machine, and deployments on any server."""

import os

import click

from flows import stack
from flows.cli.options import DEFAULT_CLUSTER
from flows.prefect_client import connect
from infra import background
from infra.errors import VirtscaleError
from infra.prefect_server import Server, client_environment, find_server, home
from infra.settings import prefect_api_url

PORT = click.IntRange(1, 65535)
clusters_option = click.option(
    "--cluster", "clusters", multiple=True, metavar="CLUSTER", help="Once per cluster to measure."
)
store_option = click.option("--store", default="", help="Where their runs store results, when not asked.")


@click.group("prefect")
def prefect() -> None:
    """Schedule, retry and trigger runs with Prefect."""


@prefect.command("apply")
@clusters_option
@store_option
@click.option("--pool", default="", help="Work pool of the runs; made where it is missing.")
@click.option(
    "--pool-type",
    type=click.Choice(["process", "kubernetes"]),
    default="process",
    show_default=True,
    help="What a missing pool is made as: processes of the worker's machine, or a Job per run.",
)
def apply_command(*, clusters: tuple[str, ...], store: str, pool: str, pool_type: str) -> None:
    """Put the deployments of deployments/prefect.yaml on the Prefect server; says what changed.

    Each cluster gets a set of its own, of which one run is active at a time. Applying again is harmless.
    """
    connect()
    applied(clusters, store, pool, pool_type)


def applied(clusters: tuple[str, ...], store: str, pool: str = "", pool_type: str = "process") -> None:
    """Apply for every cluster, and tell."""
    # Imported here: Prefect reads its settings at import.
    from flows.deployments import Place, apply

    for cluster in clusters or (DEFAULT_CLUSTER,):
        for line in apply(Place(cluster, store, pool, pool_type)):
            click.echo(line)


@prefect.command()
@clusters_option
@store_option
@click.option("--port", type=PORT, default=4200, show_default=True, help="Port of API and UI.")
@click.option("--webhook-port", type=PORT, default=4280, show_default=True, help="Port of the receiver.")
@click.option("--sqlite", is_flag=True, help="No PostgreSQL, even if this machine has it.")
def up(*, clusters: tuple[str, ...], store: str, port: int, webhook_port: int, sqlite: bool) -> None:
    """Start database, server, worker and webhook receiver in the background, and apply the deployments.

    What runs already stays as it is.
    """
    refuse_foreign()
    server = stack.up_server(port, sqlite=sqlite)
    os.environ.update(client_environment(server))
    applied(clusters, store)
    stack.up_worker(server)
    stack.up_receiver(server, webhook_port)
    background.require(stack.worker())
    tell(server, webhook_port)


@prefect.command()
@click.option("--yes", is_flag=True, help="Also when runs are active: they end with the worker.")
def down(*, yes: bool) -> None:
    """Stop what `up` started; runs, schedules and results are kept."""
    server = find_server()
    if server is not None and not yes and (active := stack.active_runs(server)):
        raise click.ClickException(
            f"{len(active)} active: {', '.join(active[:3])}; wait, cancel them, or give --yes"
        )
    stopped = list(stack.down())
    click.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


def refuse_foreign() -> None:
    """A server that the user named is the user's to start.

    Raises:
        VirtscaleError: there is one.
    """
    if url := prefect_api_url():
        raise VirtscaleError(
            f"PREFECT_API_URL={url} names a server of yours: unset it, or virtscale prefect apply"
        )


def tell(server: Server, webhook_port: int) -> None:
    """The health line, and where everything is."""
    without = "" if server.database == "PostgreSQL" else " (for one machine only; PostgreSQL takes more runs)"
    ready = stack.answers(webhook_port, "readyz")
    click.echo(f"healthy   server, worker, receiver{'' if ready else ' (not ready yet)'}")
    click.echo(f"ui        {server.ui}")
    click.echo(f"database  {server.database}{without}")
    click.echo(f"webhook   http://127.0.0.1:{webhook_port}/hooks/NAME, secret in {stack.secret_file()}")
    click.echo(f"logs      {home()}")
