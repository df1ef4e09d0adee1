"""Cancel in the Prefect UI ends a run as Ctrl-C does: issuing stops, what is known is stored, objects go.

Prefect sends TERM, and KILL 30 s later; what is not gone by then goes in the hook, in a process of its own.
A client that lost its server for half a minute hears of no cancellation any more: the run looks for itself.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import FlowRun, State
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.logging.loggers import flow_run_logger
from prefect.runtime import flow_run as this_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled

from flows.cleaning import clean_run
from infra.errors import VirtscaleError
from infra.results.manifest import read_manifest
from infra.results.open import open_store

LOOK_S = 3.0
ANSWER_S = 5.0


class RunCancelled(Exception):
    """The run was cancelled, and has ended in order."""


@contextmanager
def cancellable() -> Iterator[None]:
    """Make TERM, and a cancellation that nobody signals, an orderly end of the block.

    Raises:
        RunCancelled: the run was cancelled.
        TerminationSignal: the process was told to end for another reason.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, ends = threading.Event(), threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    run_id = UUID(str(this_run.id))
    looking = threading.Thread(target=_look, args=(run_id, ends), name="cancellation", daemon=True)

    def once(_: int, __: FrameType | None) -> None:
        if not told.is_set():
            told.set()
            signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, once)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    looking.start()
    try:
        yield
    except KeyboardInterrupt:
        if not told.is_set():
            raise
        if is_cancelled(run_id):
            raise RunCancelled from None
        raise TerminationSignal(signal.SIGTERM) from None
    finally:
        ends.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _look(run_id: UUID, ends: threading.Event) -> None:
    """Send this process TERM when the run is to be cancelled."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}), _client() as client:
        while not ends.wait(LOOK_S):
            if _is_cancelled(client, run_id):
                os.kill(os.getpid(), signal.SIGTERM)
                return


def is_cancelled(run_id: UUID) -> bool:
    """Whether the run is to be cancelled, or is; False when Prefect does not answer."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}), _client() as client:
        return _is_cancelled(client, run_id)


def _client() -> SyncPrefectClient:
    return get_client(sync_client=True, httpx_settings={"timeout": ANSWER_S})


def _is_cancelled(client: SyncPrefectClient, run_id: UUID) -> bool:
    try:
        state = client.read_flow_run(run_id).state
    except (httpx.HTTPError, PrefectException):
        return False
    return state is not None and (state.is_cancelling() or state.is_cancelled())


def as_cancelled() -> State[Any]:
    """How a run ends that was cancelled."""
    return Cancelled(message="Cancelled; what was measured is stored, and the run's objects are gone")


# Prefect calls a hook by these names, and by position elsewhere.
def clean_after(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Hook of a cancelled run: what its process left on the cluster goes, however long that takes."""
    logger = flow_run_logger(flow_run, flow)
    asked = flow_run.parameters["request"]
    asked = asked if isinstance(asked, dict) else asked.model_dump(mode="json")
    run_id, store = asked.get("run_id") or str(flow_run.id), asked.get("store") or "results"
    try:
        manifest = read_manifest(open_store(store, writable=False), run_id)
        if asked.get("keep") or manifest is None or not manifest["objects_left"]:
            return
        clean_run(run_id, store)
        logger.info("cancelled: the run's objects are gone")
    except VirtscaleError as error:
        logger.warning("cancelled, but not clean: %s; virtscale clean %s --store %s", error, run_id, store)
