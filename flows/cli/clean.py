"""`virtscale clean`: take what a run created off its cluster, and nothing else."""

import json
import sys

import click

from flows.cli.options import json_option, store_option, yes_option
from flows.one_run import one_run
from flows.study import CLEAN, run_step
from infra.errors import ProfileError, StoreError
from infra.results.lock import only_process
from infra.results.manifest import check_run_id, read_manifest, write_manifest
from infra.results.open import open_store
from infra.results.uploads import send_kept
from tasks.run import RunRequest


@click.command("clean")
@click.argument("run_id", metavar="RUN")
@store_option
@yes_option
@json_option
def clean(*, run_id: str, store: str, yes: bool, as_json: bool) -> None:
    """Delete what RUN created, from any state; its results stay."""
    looked_at = open_store(store, writable=False)
    send_kept(looked_at, check_run_id(run_id), lambda line: click.echo(line, err=True))
    manifest = read_manifest(looked_at, run_id)
    if manifest is None:
        raise StoreError(f"run {run_id}: store {store} has no such run (virtscale runs --store {store})")
    request = request_of(manifest, store)
    if not (yes or request.cluster.startswith("virtual")):
        ask(request)
    opened = open_store(store)
    with only_process(opened, run_id), one_run(request, opened):
        summary = run_step(request, CLEAN)
        # read again: the run may have ended while this waited for the cluster
        write_manifest(opened, run_id, {**(read_manifest(opened, run_id) or manifest), "objects_left": False})
    click.echo(
        json.dumps(summary, default=str)
        if as_json
        else f"run {run_id}: nothing of it is left on {request.cluster}"
    )


def request_of(manifest: dict[str, object], store: str) -> RunRequest:
    """The request that a manifest was written for."""
    names = ("run_id", "profile", "cluster", "seed")
    asked = {name: manifest[name] for name in names}
    return RunRequest.model_validate({**asked, "store": store, "faults": manifest["faults"] or ""})


def ask(request: RunRequest) -> None:
    """Let a person decide; a script has to say --yes.

    Raises:
        ProfileError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise ProfileError(f"clean {request.run_id}: there is nobody to ask; give --yes")
    click.confirm(f"Delete everything that {request.run_id} created on {request.cluster}?", abort=True)
