"""What the Prefect UI shows of a run: progress, a table per batch, a summary; one log line per batch.

A measurement never fails because it could not be told of: what Prefect does not take is a log line.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas import State
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Running

from flows.cli.terminal import step_lines
from flows.measured import Row, measured_rows
from flows.outcome import Outcome
from flows.progress import Progress, Summary, progress
from flows.steps import Step
from flows.study import steps_to_take
from infra.results.open import open_store
from tasks.analysis.wording import duration_or_beyond, with_error
from tasks.report_text import human_duration, verdict_line
from tasks.run import RunRequest

PAUSE_S = 1.0
"""Between two updates of the progress bar at least."""

RETRIES = 2
"""Prefect's client waits 2, 4, 8 ... s before each: with as many as a flow's end is worth, a run that tells
of a step while the server is away would stand still for minutes."""

WAITING = "AwaitingCluster"
"""The state of a run whose cluster is in use by another."""
AFTER = {"deploy": "delete", "boot": "stop"}
HEAD = ("stage", "VMs", "ok", "p50", "p99", "end to end", "verdict")


class Artifacts:
    """A `flows.progress.Progress` that tells Prefect, and whoever was told before."""

    def __init__(self, request: RunRequest, before: Progress) -> None:
        self._request, self._before = request, before
        self._total = max(len(steps_to_take(request)), 1)
        self._done = 0
        self._is_waiting = False
        self._bar: UUID | None = None
        self._tables: deque[Callable[[], Any]] = deque()
        self._shown_s = float("-inf")

    def waits(self, text: str) -> None:
        """The run's state, its bar and its log say what it waits for."""
        self._before.waits(text)
        get_run_logger().info("waits: %s", text)
        self._shown_s = float("-inf")
        self._show(f"waits: {text}")
        self._is_waiting = True
        _soon(lambda: _state(Running(name=WAITING, message=text)))

    def started(self, step: Step) -> None:
        """The bar says what is done now."""
        self._before.started(step)
        if self._is_waiting:
            self._is_waiting = False
            _soon(lambda: _state(Running()))
        self._show(step.label)

    def finished(self, step: Step, summary: Summary) -> None:
        """The bar grows; a batch gets its table; the log its line."""
        self._before.finished(step, summary)
        self._done += 1
        for line in step_lines(self._request, step, summary):
            get_run_logger().info(line)
        if rows := table_of(self._request, step, summary):
            self._tables.append(partial(create_table_artifact, rows, key_of(step), step.label))
        self._show_tables()
        self._show(step.label)

    def _show_tables(self) -> None:
        """Those that Prefect did not take are told again with the next step."""
        while self._tables and _soon(self._tables[0]) is not None:
            self._tables.popleft()

    def _show(self, label: str) -> None:
        """Move the bar, at most once a second; its last move is never left out."""
        last = self._done >= self._total
        if time.monotonic() - self._shown_s < PAUSE_S and not last:
            return
        self._shown_s = time.monotonic()
        percent, text = 100 * min(self._done / self._total, 1.0), f"{label}: {self._done} of {self._total}"
        if self._bar is None:
            self._bar = _soon(lambda: create_progress_artifact(percent, key="progress", description=text))
        else:
            bar = self._bar
            _soon(lambda: update_progress_artifact(bar, progress=percent, description=text))


@contextmanager
def told(request: RunRequest) -> Iterator[None]:
    """Tell Prefect of every step of a run."""
    token = progress.set(Artifacts(request, progress.get()))
    try:
        yield
    finally:
        progress.reset(token)


def key_of(step: Step) -> str:
    """The key of a step's table; a batch's versions are its history over all runs."""
    return "-".join(step.label.lower().replace("(", "").replace(")", "").split())


def table_of(request: RunRequest, step: Step, summary: Summary) -> list[dict[str, Any]]:
    """The rows of a batch or of an IO cell; none for any other step."""
    if step.stage == "io" and "cell" in summary:
        return [_plain(summary)]
    if step.stage not in AFTER:
        return []
    rows = measured_rows(open_store(request.store, writable=False), request.run_id)
    of_step = {step.stage, AFTER[step.stage]}
    mine = [row for row in rows if row["batch"] == step.vms and row["repeat"] == step.repeat]
    return [dict(zip(HEAD, cells_of(row), strict=True)) for row in mine if row["stage"] in of_step]


def cells_of(row: Row) -> tuple[str, ...]:
    """One batch as text: what is beyond its limit says so."""
    limit_s = row["limit_s"]
    p50, p99 = (duration_or_beyond(row[name], limit_s) if row["step"] else "-" for name in ("p50_s", "p99_s"))
    whole = with_error(row["end_to_end_s"], row["end_to_end_error_s"], limit_s)
    return (row["stage"], f"{row['batch']:,}", f"{row['n_ok']:,}", p50, p99, whole, row["verdict"])


def summarise(outcome: Outcome, request: RunRequest) -> None:
    """The run's summary as a Markdown artifact: verdict, table, where the report is."""
    rows = measured_rows(open_store(request.store, writable=False), outcome.run_id)
    text = "\n".join(_summary(outcome, request, [cells_of(row) for row in rows]))
    _told(lambda: create_markdown_artifact(text, key="summary", description=f"run {outcome.run_id}"))


def _summary(outcome: Outcome, request: RunRequest, rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"# Run {outcome.run_id}"
    yield f"{request.profile.name} on {request.cluster}, seed {request.seed}, store `{request.store}`\n"
    yield f"**{verdict_line(outcome.verdict or 'none: nothing was measured', outcome.reasons)}**\n"
    yield f"{human_duration(outcome.elapsed_s)}, {outcome.peak_rss_mib:,.0f} MiB of this machine\n"
    if rows:
        yield from (f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *rows))
    if outcome.report:
        yield f"\n{_link(outcome.report)}"


def link_report(run_id: str, address: str) -> None:
    """Where a report is that was written again."""
    _told(lambda: create_markdown_artifact(_link(address), key="report", description=f"run {run_id}"))


def _link(address: str) -> str:
    """Browsers follow no link from a server's page to a file: the path is there to be copied."""
    target = address if "://" in address else f"file://{address}"
    return f"[Report]({target}): `{address}`"


def _plain(cell: Summary) -> Row:
    return {name: value for name, value in cell.items() if isinstance(value, str | int | float | None)}


def _state(state: State[Any]) -> None:
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(str(flow_run.id)), state, force=True)


def _soon(tell: Callable[[], Any]) -> Any:
    """What Prefect answers; None when it does not within seconds: the run goes on."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: RETRIES}):
        return _told(tell)


def _told(tell: Callable[[], Any]) -> Any:
    """What Prefect answers; None when it does not."""
    try:
        return tell()
    except (httpx.HTTPError, PrefectException) as error:
        get_run_logger().warning("not shown in Prefect: %s", error)
        return None
