"""`virtscale revert`: take back what a run's tuning set on its cluster."""

import json
from typing import Any

import click

from flows.cleaning import request_of
from flows.cli.asking import asker
from flows.cli.options import json_option, store_option, yes_option
from flows.one_run import one_run
from infra.errors import StoreError
from infra.results.lock import only_process
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from infra.world import open_world
from tasks.tuning_revert import revert as take_back
from tasks.tuning_snapshot import is_in_force, read_snapshot


@click.command("revert")
@click.argument("run_id", metavar="RUN")
@store_option
@yes_option
@json_option
def revert(*, run_id: str, store: str, yes: bool, as_json: bool) -> int:
    """Restore what RUN's tuning changed, as far as it can be restored; names what cannot."""
    found = open_store(store, writable=False)
    manifest = read_manifest(found, run_id)
    if manifest is None:
        raise StoreError(f"run {run_id}: store {store} has no such run (virtscale runs --store {store})")
    rows: list[dict[str, Any]] = []
    if is_in_force(read_snapshot(found, run_id)):
        request = request_of(manifest, store)
        opened = open_store(store)
        with (
            only_process(opened, run_id),
            one_run(request, opened),
            open_world(request.spec()) as world,
        ):
            taken = world.run(take_back(world, request.profile, asker(yes=yes)))
        rows = taken or []
    if as_json:
        click.echo(json.dumps({"run_id": run_id, "knobs": rows}))
    else:
        for line in lines_of(run_id, rows):
            click.echo(line)
    return 1 if any(row["status"] == "not-reverted" for row in rows) else 0


def lines_of(run_id: str, rows: list[dict[str, Any]]) -> list[str]:
    """One line per knob; what could not be taken back says why."""
    if not rows:
        return [f"run {run_id}: its tuning has nothing in force"]
    return [_line(row) for row in rows]


def _line(row: dict[str, Any]) -> str:
    now = row["effective"] or "its default"
    if row["status"] == "reverted":
        return f"{row['knob']}: {row['before']} -> {now}"
    return f"{row['knob']}: NOT reverted, is {now}: {row['note'] or 'it differs from what it was before'}"
