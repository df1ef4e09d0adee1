"""Cleaning after a run, whoever asks for it: the command line, Prefect, or the hook of a cancelled run."""

from typing import Any

from flows.one_run import one_run
from flows.study import CLEAN, run_step, tell
from infra.errors import StoreError
from infra.results.lock import only_process
from infra.results.manifest import check_run_id, read_manifest, write_manifest
from infra.results.open import open_store
from infra.results.uploads import send_kept
from tasks.run import RunRequest
from tasks.run_manifest import Manifest


def run_to_clean(run_id: str, store: str) -> RunRequest:
    """The request of a run, as its manifest says, once the store has what this machine had kept of it.

    Raises:
        StoreError: the store has no such run.
    """
    looked_at = open_store(store, writable=False)
    send_kept(looked_at, check_run_id(run_id), tell)
    manifest = read_manifest(looked_at, run_id)
    if manifest is None:
        raise StoreError(f"run {run_id}: store {store} has no such run (virtscale runs --store {store})")
    return request_of(manifest, store)


def clean_run(run_id: str, store: str) -> dict[str, Any]:
    """Take what the run created off its cluster, and write down that nothing is left.

    Raises:
        StoreError: the store has no such run, or another process is at work on it.
        StageError: objects are left that may be the run's.
    """
    request, opened = run_to_clean(run_id, store), open_store(store)
    with only_process(opened, run_id), one_run(request, opened):
        summary = run_step(request, CLEAN)
        # read now: the run may have ended while this waited for the cluster
        write_manifest(opened, run_id, {**(read_manifest(opened, run_id) or {}), "objects_left": False})
    return summary


def request_of(manifest: Manifest, store: str) -> RunRequest:
    """The request that a manifest was written for."""
    names = ("run_id", "profile", "cluster", "seed")
    asked = {name: manifest[name] for name in names}
    return RunRequest.model_validate({**asked, "store": store, "faults": manifest["faults"] or ""})
