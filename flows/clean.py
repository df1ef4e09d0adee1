"""Cleaning alone: what a run left on its cluster goes, and nothing else."""

from typing import Any

from prefect import flow, task

from flows.cli.clean import request_of
from flows.forms import RunForm
from flows.one_run import one_run
from flows.study import CLEAN, run_step
from infra.errors import StoreError
from infra.results.lock import only_process
from infra.results.manifest import read_manifest, write_manifest
from infra.results.open import open_store


def clean_run(run_id: str, store: str) -> dict[str, Any]:
    """Take what the run created off its cluster, and write down that nothing is left.

    Raises:
        StoreError: the store has no such run, or another process is at work on it.
        StageError: objects are left that may be the run's.
    """
    opened = open_store(store)
    manifest = read_manifest(opened, run_id)
    if manifest is None:
        raise StoreError(f"run {run_id}: store {store} has no such run (virtscale runs --store {store})")
    request = request_of(manifest, store)
    with only_process(opened, run_id), one_run(request, opened):
        summary = run_step(request, CLEAN)
        # read again: the run may have ended while this waited for the cluster
        write_manifest(opened, run_id, {**(read_manifest(opened, run_id) or manifest), "objects_left": False})
    return summary


cleaned = task(name="clean", task_run_name="clean", retries=0)(clean_run)


@flow(name="clean", flow_run_name="clean {request.run_id}", retries=0)
def clean(request: RunForm) -> dict[str, Any]:
    """Delete what a run created, from any state; its results stay.

    Args:
        request: Which run.
    """
    return cleaned(request.run_id, request.store)
