"""`virtscale run`: everything from preflight to report."""

import json
import shlex
import sys
from collections.abc import Mapping
from typing import Any

import click

from flows.approval import approval, asked_of
from flows.cli.asking import asker
from flows.cli.options import (
    cluster_option,
    json_option,
    profile_options,
    resolved_profile,
    seed_option,
    store_option,
    yes_option,
)
from flows.cli.terminal import TerminalProgress, headline, show_outcome
from flows.interrupts import told_to_end
from flows.outcome import Outcome
from flows.prefect_client import conduct_with_prefect
from flows.progress import progress
from flows.study import begin, conduct, finished_before
from flows.workers import check_workers
from infra.errors import ProfileError, StateLost, VirtscaleError
from infra.manifests import SLOTS
from infra.prefect_server import find_server
from infra.results.manifest import check_run_id
from infra.results.open import open_store
from infra.results.uploads import send_kept
from infra.settings import prefect_api_url
from tasks.run import RunRequest, new_run_id
from tasks.tuning_snapshot import is_in_force, read_snapshot

INTERRUPTED = 130
TERMINATED = 143


@click.command("run")
@profile_options
@cluster_option
@store_option
@click.option("--run-id", metavar="ID", help="Name of the run; an unfinished one goes on.")
@seed_option
@click.option("--faults", default="", metavar="FILE.toml", help="Faults to inject into the virtual cluster.")
@click.option("--keep", is_flag=True, help="Leave the run's objects on the cluster.")
@yes_option
@click.option(
    "--workers",
    type=click.Choice(["dask"]),
    help="Other processes share each batch; not on a virtual cluster.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, SLOTS),
    default=4,
    show_default=True,
    help="How many, with --workers.",
)
@click.option(
    "--dask-address",
    default="",
    metavar="tcp://HOST:PORT",
    help="Scheduler of a Dask cluster that runs already; without, one is started on this machine.",
)
@click.option("--no-prefect", is_flag=True, help="Run the same stages without Prefect.")
@json_option
def run(*, no_prefect: bool, as_json: bool, yes: bool, **options: Any) -> int:
    """Measure: deploys and boot storms, batch by batch, with a report at the end.

    Ctrl-C and SIGTERM stop it in order: what is known is stored, its objects are deleted.
    A run that was stopped or killed goes on with the same --run-id; what is finished is not done again.
    """
    request = requested(options)
    check_workers(request, with_prefect=not no_prefect)
    approval.set(asked_of(asker(yes=yes), "--yes" if yes else "who sat at the terminal"))
    store = open_store(request.store)
    send_kept(store, request.run_id, lambda line: click.echo(line, err=True))
    before = finished_before(request)
    if before is None:
        begin(store, request)
    click.echo(f"run {request.run_id}", err=True)
    if before is not None:
        click.echo(headline(request), err=True)
    with told_to_end() as is_told:
        outcome = before or conducted(request, no_prefect)
    tell_of_tuning(request)
    if outcome is None:
        return TERMINATED if is_told() else INTERRUPTED
    show(outcome, request, as_json)
    return outcome.exit_code


def tell_of_tuning(request: RunRequest) -> None:
    """What tuning set on a cluster that outlives the run stays: say how to take it back."""
    if request.cluster.partition(":")[0] == "virtual":
        return
    if is_in_force(read_snapshot(open_store(request.store, writable=False), request.run_id)):
        command = shlex.join(["virtscale", "revert", request.run_id, "--store", request.store])
        click.echo(f"tuning stays in force; to take it back: {command}", err=True)


def requested(options: Mapping[str, Any]) -> RunRequest:
    """What the options ask for.

    Raises:
        ProfileError: one of them is wrong.
    """
    own = {name: options[name] for name in ("cluster", "store", "seed", "faults", "keep")}
    profile = resolved_profile(
        options["profile_name"], options["sets"], options["stages"], options["cluster"]
    )
    run_id = new_run_id() if options["run_id"] is None else check_run_id(options["run_id"])
    return RunRequest(run_id=run_id, profile=profile, **own, **shared(options))


def shared(options: Mapping[str, Any]) -> dict[str, Any]:
    """How many processes share a batch, and which.

    Raises:
        ProfileError: a Dask cluster is named, but not asked for.
    """
    if options["workers"] is None:
        if options["dask_address"]:
            raise ProfileError("--dask-address: it is used with --workers dask alone")
        return {}
    return {"shards": options["shards"], "dask": options["dask_address"]}


def conducted(request: RunRequest, no_prefect: bool) -> Outcome | None:
    """The outcome of the run; None when it was interrupted."""
    with TerminalProgress(request) as listener:
        token = progress.set(listener)
        try:
            return conduct(request) if no_prefect else with_prefect(request)
        except KeyboardInterrupt:
            listener.stop()
            click.echo(f"interrupted; go on with: {same_command(request.run_id)}", err=True)
            tell_of_left(listener, request)
            return None
        except VirtscaleError as error:
            listener.stop()
            if error.exit_code == 1:
                click.echo(f"stopped; go on with: {same_command(request.run_id)}", err=True)
            if not isinstance(error, StateLost):
                tell_of_left(listener, request)
            raise
        finally:
            progress.reset(token)


def tell_of_left(listener: TerminalProgress, request: RunRequest) -> None:
    """A run that could not clean up after itself says how to do it."""
    if not listener.is_clean:
        click.echo(f"objects of the run may be left: {clean_command(request)}", err=True)


def with_prefect(request: RunRequest) -> Outcome:
    """The outcome of the run as a Prefect flow; the first one waits for a server."""
    if not prefect_api_url() and find_server() is None:
        click.echo(
            "prefect       a server starts in the background, once (virtscale doctor shows it)", err=True
        )
    return conduct_with_prefect(request)


def show(outcome: Outcome, request: RunRequest, as_json: bool) -> None:
    """The result on stdout."""
    if as_json:
        click.echo(json.dumps(outcome.as_json()))
    else:
        show_outcome(outcome, request.store, clean_command(request))


def same_command(run_id: str) -> str:
    """The command line that goes on with this run."""
    given = sys.argv[1:]
    has_id = any(each == "--run-id" or each.startswith("--run-id=") for each in given)
    return shlex.join(["virtscale", *given, *([] if has_id else ["--run-id", run_id])])


def clean_command(request: RunRequest) -> str:
    """The command that removes what the run left."""
    return shlex.join(["virtscale", "clean", request.run_id, "--store", request.store])
