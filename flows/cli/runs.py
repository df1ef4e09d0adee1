"""`virtscale runs`: what a store holds."""

import json
from collections.abc import Mapping
from typing import Any

import click

from flows.cli.options import json_option, store_option
from flows.cli.text import table
from infra.results.manifest import read_manifests
from infra.results.open import open_store

COLUMNS = ("run", "profile", "cluster", "started", "verdict", "state")


@click.command("runs")
@store_option
@json_option
def runs(*, store: str, as_json: bool) -> None:
    """List the runs of a store, oldest first."""
    found = read_manifests(open_store(store, writable=False)).values()
    lines = [line_of(each) for each in sorted(found, key=lambda each: each["started_at"])]
    if as_json:
        click.echo(json.dumps(lines))
    elif not lines:
        click.echo(f"no run in {store}")
    else:
        click.echo(table([COLUMNS, *(tuple(line[name] or "-" for name in COLUMNS) for line in lines)]))


def line_of(manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """What the list says of a run; an unfinished one goes on with `run --run-id`."""
    return {
        "run": manifest["run_id"],
        "profile": manifest["profile"]["name"],
        "cluster": manifest["cluster"],
        "started": manifest["started_at"][:16].replace("T", " "),
        "verdict": manifest["verdict"],
        "state": state_of(manifest),
    }


def state_of(manifest: Mapping[str, Any]) -> str:
    """Finished or unfinished, and whether objects may be left on the cluster."""
    state = "finished" if manifest["finished_at"] else "unfinished, goes on with --run-id"
    return f"{state}, objects left" if manifest["objects_left"] else state
