"""`virtscale doctor`: is everything here that a run needs, and what runs in the background."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from flows.cli.options import cluster_option, json_option, store_option
from flows.prefect_client import require_usable
from infra.errors import VirtscaleError
from infra.prefect_server import find_server, home, stop_server
from infra.results.folder import FolderStore
from infra.results.open import open_store
from infra.results.port import ObjectStore
from infra.settings import prefect_api_url
from infra.world import WorldSpec, open_world
from tasks.inventory import VMS, Item, inventory, lacking
from tasks.run import new_run_id
from tasks.run_manifest import own_versions


@click.command("doctor")
@cluster_option
@store_option
@click.option("--stop-server", is_flag=True, help="Stop the Prefect server that virtscale started.")
@json_option
def doctor(*, cluster: str, store: str, stop_server: bool, as_json: bool) -> int:
    """Check versions, Prefect, store and cluster, and which stage lacks what there; nothing is created."""
    if stop_server:
        click.echo(stopped())
        return 0
    items: list[Item] = []
    checks: dict[str, Callable[[], str]] = {
        "versions": lambda: ", ".join(f"{name} {version}" for name, version in own_versions().items()),
        "prefect": prefect_line,
        "store": lambda: store_line(store),
        "cluster": lambda: cluster_line(cluster, items),
    }
    results = [checked(name, find) for name, find in checks.items()]
    stages = lacking(items) if items else {}
    if as_json:
        click.echo(json.dumps(as_document(results, items, stages)))
    else:
        show(results, items, stages)
    return max(
        [code for _, code, _ in results] + [2 for stage in stages if stage in VMS[:3] and stages[stage]]
    )


Result = tuple[str, int, str]
"""What was checked, 0 or the exit code of what is wrong, and what was found."""


def checked(name: str, find: Callable[[], str]) -> Result:
    """The result of one check."""
    try:
        return name, 0, find()
    except VirtscaleError as error:
        return name, error.exit_code, str(error)


def show(results: list[Result], items: list[Item], stages: dict[str, list[str]]) -> None:
    """A line for each check and each thing of the cluster; the stages that can run, what others lack."""
    for name, code, found in results:
        click.echo(f"{name:<20}{'fail' if code else 'ok':<9}{found}")
    for item in items:
        click.echo(f"{item.name:<20}{item.status:<9}{item.found}{f'; {item.hint}' if item.hint else ''}")
    ready = [stage for stage, missing in stages.items() if not missing]
    if ready:
        click.echo(f"{'stages':<20}{'ok':<9}{', '.join(ready)}")
    for stage, missing in stages.items():
        if missing:
            click.echo(f"{'stage ' + stage:<20}{'missing':<9}{', '.join(missing)}")


def as_document(results: list[Result], items: list[Item], stages: dict[str, list[str]]) -> dict[str, Any]:
    """The same for programs."""
    checks = [{"name": name, "ok": code == 0, "found": found} for name, code, found in results]
    return {"checks": checks, "cluster": [asdict(item) for item in items], "stages": stages}


def stopped() -> str:
    """Stop our server and say so."""
    return "Prefect server stopped" if stop_server() else "no Prefect server of virtscale is running"


def prefect_line() -> str:
    """Which Prefect a run would use.

    Raises:
        VirtscaleError: the one that the environment names does not answer, or cannot be used.
    """
    if url := prefect_api_url():
        require_usable(f"PREFECT_API_URL={url}")
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


def cluster_line(cluster: str, items: list[Item]) -> str:
    """What a world of that name is; opened with a store that is thrown away. What it has goes into `items`.

    Raises:
        VirtscaleError: it cannot be opened.
    """
    with (
        TemporaryDirectory() as store,
        open_world(WorldSpec(run_id=new_run_id(), store=store, cluster=cluster)) as world,
    ):
        items += world.run(inventory(world))
        versions = ", ".join(f"{name} {version}" for name, version in world.versions.items())
        return f"{cluster}: world {world.name}, {versions}"
