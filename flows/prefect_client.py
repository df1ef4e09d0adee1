"""The way into Prefect for the command line: a server is found or started, then Prefect is imported."""

import os

from flows.outcome import Outcome, outcome_of
from infra.errors import StoreError, VirtscaleError
from infra.prefect_server import HEARTBEAT_S, client_environment, ensure_server, is_healthy
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from infra.settings import prefect_api_url
from tasks.run import RunRequest


class PrefectAway(VirtscaleError):
    """The Prefect API that the environment names does not answer."""

    exit_code = 2


def connect() -> str:
    """The address of the Prefect API that this process uses from now on: the user's own, or ours.

    Raises:
        VirtscaleError: it does not answer; nothing was changed.
    """
    url = prefect_api_url()
    if url and not is_healthy(url):
        raise PrefectAway(f"PREFECT_API_URL={url}: no answer; start it, unset it, or use --no-prefect")
    if url:
        # The last word on the terminal is ours; Prefect's own log goes to its API all the same.
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", HEARTBEAT_S)
        return url
    os.environ.update(client_environment(ensure_server()))
    return prefect_api_url()


def conduct_with_prefect(request: RunRequest) -> Outcome:
    """Run the flow `study` in this process and return how it ended.

    Raises:
        VirtscaleError: as `flows.study.conduct`, or Prefect does not answer.
        KeyboardInterrupt: interrupted, told to end, or cancelled in the UI.
    """
    connect()
    # Imported here: Prefect reads its settings at import, and costs more than a second.
    from prefect import tags
    from prefect.exceptions import CancelledRun, TerminationSignal

    from flows.pipeline import resolved_study

    with tags("virtscale", request.cluster.partition(":")[0], request.cluster, request.profile.name):
        try:
            resolved_study(request)
        except (CancelledRun, TerminationSignal) as error:
            raise KeyboardInterrupt from error
    store = open_store(request.store)
    manifest = read_manifest(store, request.run_id)
    if manifest is None:
        raise StoreError(f"run {request.run_id}: its manifest is gone from the store")
    return outcome_of(store, manifest)
