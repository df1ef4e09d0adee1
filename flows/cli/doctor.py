"""`virtscale doctor`: is everything here that a run needs, and what runs in the background."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from flows.cli.options import cluster_option, store_option
from infra.errors import VirtscaleError
from infra.prefect_server import find_server, home, is_healthy, stop_server
from infra.results.folder import FolderStore
from infra.results.open import open_store
from infra.results.port import ObjectStore
from infra.settings import prefect_api_url
from infra.world import WorldSpec, open_world
from tasks.run import new_run_id
from tasks.run_manifest import own_versions


@click.command("doctor")
@cluster_option
@store_option
@click.option("--stop-server", is_flag=True, help="Stop the Prefect server that virtscale started.")
def doctor(*, cluster: str, store: str, stop_server: bool) -> int:
    """Check versions, Prefect, store and cluster; nothing is created."""
    if stop_server:
        click.echo(stopped())
        return 0
    click.echo(f"{'versions':<10}ok    {', '.join(f'{k} {v}' for k, v in own_versions().items())}")
    checks: dict[str, Callable[[], str]] = {
        "prefect": prefect_line,
        "store": lambda: store_line(store),
        "cluster": lambda: cluster_line(cluster),
    }
    return max(check(name, find) for name, find in checks.items())


def check(name: str, find: Callable[[], str]) -> int:
    """One line; 0, or the exit code of what is wrong."""
    try:
        click.echo(f"{name:<10}ok    {find()}")
        return 0
    except VirtscaleError as error:
        click.echo(f"{name:<10}fail  {error}")
        return error.exit_code


def stopped() -> str:
    """Stop our server and say so."""
    return "Prefect server stopped" if stop_server() else "no Prefect server of virtscale is running"


def prefect_line() -> str:
    """Which Prefect a run would use.

    Raises:
        VirtscaleError: the one that the environment names does not answer.
    """
    if url := prefect_api_url():
        if not is_healthy(url):
            raise VirtscaleError(f"PREFECT_API_URL={url}: no answer; start it, unset it, or use --no-prefect")
        return f"{url} (PREFECT_API_URL)"
    server = find_server()
    if server is None:
        return "no server; the first run starts one"
    return f"{server.ui} pid {server.pid}, log and database in {home()} (virtscale doctor --stop-server)"


def store_line(store: str) -> str:
    """Whether results can be written; a folder that does not exist yet is not made.

    Raises:
        VirtscaleError: it cannot be used.
    """
    if "://" not in store and not Path(store).expanduser().exists():
        return f"{store}: made by the first run"
    opened = open_store(store)
    return opened.address("") if isinstance(opened, FolderStore) else s3_line(opened)


def s3_line(store: ObjectStore) -> str:
    """Where an S3 store is; that it was opened says that bucket, rights, clock and conditions are right."""
    options = store.scan_options()
    where = f"{options['aws_endpoint_url']}, region {options['aws_region']}"
    return f"{store.address('')} at {where}: list, read, write, delete and conditional writes work"


def cluster_line(cluster: str) -> str:
    """What a world of that name is; opened with a store that is thrown away.

    Raises:
        VirtscaleError: it cannot be opened.
    """
    with (
        TemporaryDirectory() as store,
        open_world(WorldSpec(run_id=new_run_id(), store=store, cluster=cluster)) as world,
    ):
        versions = ", ".join(f"{name} {version}" for name, version in world.versions.items())
        return f"{cluster}: world {world.name}, {versions}"
