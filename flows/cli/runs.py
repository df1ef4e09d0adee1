"""`virtscale runs`: what a store holds."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from flows.cli.options import json_option, store_option, yes_option
from flows.cli.text import table
from infra.errors import ProfileError, StoreError
from infra.guests.ssh.folder import forget_keys, key_folder
from infra.results.lock import is_at_work, only_process
from infra.results.manifest import check_run_id, each_manifest, read_manifest
from infra.results.open import open_store
from infra.results.port import ObjectStore
from infra.results.removal import delete_run
from infra.results.uploads import waiting_writes
from tasks.records import TABLES

COLUMNS = ("run", "profile", "cluster", "started", "verdict", "state")


@click.group("runs", invoke_without_command=True)
@store_option
@json_option
@click.pass_context
def runs(context: click.Context, *, store: str, as_json: bool) -> None:
    """List the runs of a store, oldest first."""
    if context.invoked_subcommand is not None:
        return
    lines = lines_of(open_store(store, writable=False))
    if as_json:
        click.echo(json.dumps(lines))
    elif not lines:
        click.echo(f"no run in {store}")
    else:
        click.echo(table([COLUMNS, *(tuple(line[name] or "-" for name in COLUMNS) for line in lines)]))


@runs.command("delete")
@click.argument("run_id", metavar="RUN")
@click.option("--store", metavar="FOLDER|s3://BUCKET/PREFIX", help="Where the results are.")
@yes_option
@click.option("--forget-objects", is_flag=True, help="Also a run that left objects on its cluster.")
@click.pass_context
def delete(
    context: click.Context, *, run_id: str, store: str | None, yes: bool, forget_objects: bool
) -> None:
    """Delete everything that a store holds of RUN: manifest, tables, report."""
    address = _store_of(context, store)
    opened = open_store(address)
    with only_process(opened, check_run_id(run_id)):
        check_deletable(opened, address, run_id, forget_objects)
        if not yes:
            ask(run_id, address)
        gone = delete_run(opened, run_id, TABLES)
        forget_keys(key_folder(run_id))
    click.echo(f"run {run_id}: {gone} objects deleted from {address}")


def _store_of(context: click.Context, store: str | None) -> str:
    """The store that is named after `delete`, else before it."""
    return store or str(context.parent.params["store"] if context.parent else "")


def check_deletable(store: ObjectStore, address: str, run_id: str, forget_objects: bool) -> None:
    """Nothing when the run may go.

    Raises:
        StoreError: there is nothing of it.
        ProfileError: without its results, what it left on its cluster could not be told from other objects.
    """
    manifest = read_manifest(store, run_id)
    if manifest is None and not store.keys(f"_commits/{run_id}/"):
        raise StoreError(f"run {run_id}: store {address} has no such run (virtscale runs --store {address})")
    if manifest is None or forget_objects or manifest["world"] == "virtual" or not manifest["objects_left"]:
        return
    raise ProfileError(
        f"run {run_id} left objects on {manifest['cluster']} that only its results can tell from others; "
        f"virtscale clean {run_id} --store {address} first, or give --forget-objects"
    )


def ask(run_id: str, address: str) -> None:
    """Let a person decide; a script has to say --yes.

    Raises:
        ProfileError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise ProfileError(f"delete {run_id}: there is nobody to ask; give --yes")
    click.confirm(f"Delete all results of {run_id} from {address}?", abort=True)


def lines_of(store: ObjectStore) -> list[dict[str, str | None]]:
    """What the list says, oldest run first."""
    found = [
        (manifest["started_at"], line_of(manifest, is_at_work(store, manifest["run_id"])))
        for manifest in each_manifest(store, lambda line: click.echo(line, err=True))
    ]
    lines = [line for _, line in sorted(found, key=lambda each: each[0])]
    for line in lines:
        if waiting := waiting_writes(store, str(line["run"])):
            line["state"] = f"{line['state']}, {waiting} writes kept on this machine"
    return lines


def line_of(manifest: Mapping[str, Any], at_work: bool) -> dict[str, str | None]:
    """What the list says of a run; an unfinished one goes on with `run --run-id`."""
    return {
        "run": manifest["run_id"],
        "profile": manifest["profile"]["name"],
        "cluster": manifest["cluster"],
        "started": manifest["started_at"][:16].replace("T", " "),
        "verdict": manifest["verdict"],
        "state": "running" if at_work else state_of(manifest),
    }


def state_of(manifest: Mapping[str, Any]) -> str:
    """Finished, refused or unfinished, and whether objects may be left on the cluster."""
    state = "finished" if manifest["finished_at"] else "unfinished, goes on with --run-id"
    if manifest.get("refused"):
        state = "refused"
    return f"{state}, objects left" if manifest["objects_left"] else state
