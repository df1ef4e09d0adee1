"""`virtscale clean`: take what a run created off its cluster, and nothing else."""

import json
import sys

import click

from flows.cleaning import clean_run, run_to_clean
from flows.cli.options import json_option, store_option, yes_option
from infra.errors import ProfileError
from tasks.run import RunRequest


@click.command("clean")
@click.argument("run_id", metavar="RUN")
@store_option
@yes_option
@json_option
def clean(*, run_id: str, store: str, yes: bool, as_json: bool) -> None:
    """Delete what RUN created, from any state; its results stay."""
    request = run_to_clean(run_id, store)
    if not (yes or request.cluster.startswith("virtual")):
        ask(request)
    summary = clean_run(run_id, store)
    click.echo(
        json.dumps(summary, default=str)
        if as_json
        else f"run {run_id}: nothing of it is left on {request.cluster}"
    )


def ask(request: RunRequest) -> None:
    """Let a person decide; a script has to say --yes.

    Raises:
        ProfileError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise ProfileError(f"clean {request.run_id}: there is nobody to ask; give --yes")
    click.confirm(f"Delete everything that {request.run_id} created on {request.cluster}?", abort=True)
