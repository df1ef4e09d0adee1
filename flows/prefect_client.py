"""The way into Prefect for the command line: a server is found or started, then Prefect is imported."""

import os
from typing import TYPE_CHECKING

from flows.outcome import Outcome, outcome_of
from infra.errors import StoreError, VirtscaleError
from infra.prefect_server import HEARTBEAT_S, client_environment, ensure_server
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from infra.settings import prefect_api_url
from tasks.run import RunRequest

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

ANSWER_S = 15.0


class PrefectAway(VirtscaleError):
    """The Prefect API does not answer, refuses us, or is another version's."""

    exit_code = 2


def connect() -> str:
    """The address of the Prefect API that this process uses from now on: the user's own, or ours.

    Raises:
        VirtscaleError: it does not answer; nothing was changed.
    """
    url = prefect_api_url()
    if url:
        # The last word on the terminal is ours; Prefect's own log goes to its API all the same.
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", HEARTBEAT_S)
        require_usable(f"PREFECT_API_URL={url}")
        return url
    server = ensure_server()
    os.environ.update(client_environment(server))
    require_usable(f"{server.ui}, pid {server.pid}")
    return server.url


def require_usable(where: str) -> None:
    """Check that the API which Prefect's settings name answers, takes our credentials, and is of our version.

    Raises:
        PrefectAway: not so; `where` begins the text.
    """
    # Imported here: Prefect reads its settings at import, and costs more than a second.
    import httpx
    from prefect import __version__ as own
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    settings = temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0})
    try:
        with settings, get_client(sync_client=True, httpx_settings={"timeout": ANSWER_S}) as client:
            version = _version(client) or own
            found, needed = (tuple(map(int, each.split(".")[:2])) for each in (version, own))
    except httpx.HTTPStatusError as error:
        raise PrefectAway(f"{where}: {_refusal(error.response.status_code)}") from None
    except (httpx.HTTPError, OSError):
        raise PrefectAway(f"{where}: no answer; start it, unset it, or use --no-prefect") from None
    except ValueError:
        raise PrefectAway(f"{where}: {_refusal(httpx.codes.NOT_FOUND)}") from None
    if found[0] != needed[0] or found < needed:
        raise PrefectAway(
            f"{where}: Prefect {version}, but virtscale needs {needed[0]}.{needed[1]} or a later {needed[0]};"
            " stop it and start that, or use --no-prefect"
        )


def _version(client: "SyncPrefectClient") -> str:
    """What the server says it is; Prefect Cloud, which fits every client, says nothing."""
    from prefect.client.base import ServerType

    if client.server_type == ServerType.CLOUD:
        client.read_flows(limit=1)
        return ""
    return str(client.api_version())


def _refusal(status: int) -> str:
    if status in {401, 403}:
        return f"answers {status}; set PREFECT_API_AUTH_STRING, or PREFECT_API_KEY, as it is there"
    if status == 404:
        return "no Prefect API; its address ends with /api"
    return f"answers {status}; see its log, or use --no-prefect"


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
