"""What `virtscale run` shows: live lines on a terminal, one permanent line per finished step everywhere.

Progress goes to stderr, results to stdout. Colour comes from rich, which respects NO_COLOR and pipes.
"""

from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from flows.cli.text import table
from flows.measured import Row, measured_rows
from flows.outcome import Outcome
from flows.progress import Summary
from flows.steps import Step
from flows.study import steps_to_take
from infra.results.open import open_store
from tasks.analysis.wording import duration_or_beyond, with_error
from tasks.report_text import batch_line, human_duration, io_line, latency_line, verdict_line
from tasks.run import RunRequest

COLUMNS = ("stage", "VMs", "ok", "end to end", "p50", "p99", "verdict")
NUMBERS = range(1, 6)


class TerminalProgress:
    """A `flows.progress.Progress` that prints; `is_clean` says whether the run's objects are gone."""

    def __init__(self, request: RunRequest) -> None:
        self.is_clean = True
        self._request = request
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._totals: dict[str, int] = {}
        for step in steps_to_take(request):
            self._totals[step.stage] = self._totals.get(step.stage, 0) + _weight(step)
        self._live = _live(self._console) if self._console.is_terminal else None
        self._lines: dict[str, TaskID] = {}
        self._headed = False

    def __enter__(self) -> Self:
        """Show the live line, on a terminal."""
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the live line away, whatever happened."""
        self.stop()

    def stop(self) -> None:
        """Take the live line away."""
        if self._live:
            self._live.stop()

    def waits(self, text: str) -> None:
        """One permanent line."""
        self._console.print(f"waits         {text}", markup=False)

    def started(self, step: Step) -> None:
        """A live line per stage."""
        if step.stage not in {"preflight", "report"}:
            self.is_clean = False
        if step.stage != "preflight":
            self._head()
        if self._live and step.stage not in self._lines:
            for line in self._lines.values():
                self._live.update(line, visible=not self._live.tasks[line].finished)
            total = self._totals.get(step.stage, 1)
            self._lines[step.stage] = self._live.add_task(step.label.partition(" ")[0], total=total)

    def finished(self, step: Step, summary: Summary) -> None:
        """One permanent line."""
        if step.stage == "clean":
            self.is_clean = True
        if self._live:
            self._live.advance(self._lines[step.stage], _weight(step))
        self._head()
        for line in step_lines(self._request, step, summary):
            self._console.print(line, markup=False)

    def _head(self) -> None:
        """Say what runs, once it is clear that it is not refused."""
        if not self._headed:
            self._headed = True
            self._console.print(headline(self._request), markup=False)


def headline(request: RunRequest) -> str:
    """`study on virtual:study, seed 1, store results`."""
    return f"{request.profile.name} on {request.cluster}, seed {request.seed}, store {request.store}"


def _weight(step: Step) -> int:
    return max(step.vms, 1)


def _live(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        refresh_per_second=4,
    )


def step_lines(request: RunRequest, step: Step, summary: Summary) -> list[str]:
    """What is said about a finished step; a batch that went wrong is said with its delete or stop, too."""
    before = "  (done before)" if summary.get("skipped") else ""
    if step.stage == "io" and "cell" in summary:
        return [io_line(summary) + before]
    if step.stage == "latency":
        return [latency_line(summary) + before]
    if step.stage not in {"deploy", "boot"}:
        return [f"{step.label + ' ':<14}{'done before' if summary.get('skipped') else _told(summary)}"]
    rows = measured_rows(open_store(request.store), request.run_id)
    mine = [row for row in rows if row["batch"] == step.vms and row["repeat"] == step.repeat]
    own = [row for row in mine if row["stage"] == step.stage]
    after = [row for row in mine if row["stage"] == {"deploy": "delete", "boot": "stop"}[step.stage]]
    return [batch_line(row) + before for row in own] + [
        batch_line(row) for row in after if row["verdict"] != "valid"
    ]


def _told(summary: Summary) -> str:
    """The plain values of a summary in one line; what every line says anyway is left out."""
    plain = [(name, value) for name, value in summary.items() if isinstance(value, str | int | float)]
    return (
        ", ".join(_value(name, value) for name, value in plain if name not in {"stage", "report"}) or "done"
    )


def _value(name: str, value: str | float) -> str:
    if name.endswith("_s") and isinstance(value, int | float):
        return f"{name.removesuffix('_s').replace('_', ' ')} {human_duration(value)}"
    return f"{name.replace('_', ' ')} {value if isinstance(value, str) else format(value, ',')}"


def show_outcome(outcome: Outcome, store: str, clean_command: str) -> None:
    """The tables and the last lines: verdict, report, what was left and the command that removes it."""
    rows = [
        row for row in measured_rows(open_store(store), outcome.run_id) if row["stage"] in {"deploy", "boot"}
    ]
    if rows:
        click.echo(table([COLUMNS, *(_cells(row) for row in rows)], NUMBERS))
        click.echo()
    took = f"{human_duration(outcome.elapsed_s)}, {outcome.peak_rss_mib:,.0f} MiB"
    click.echo(f"run {outcome.run_id}: {took} of this machine")
    click.echo(verdict_line(outcome.verdict or "none: nothing was measured", outcome.reasons))
    click.echo(f"report  {outcome.report or 'none'}")
    left = f"objects of the run; to remove them: {clean_command}" if outcome.objects_left else "nothing"
    click.echo(f"left    {left}")


def _cells(row: Row) -> tuple[str, ...]:
    limit_s = row.get("limit_s")
    return (
        row["stage"],
        f"{row['batch']:,}",
        f"{row['n_ok']:,}",
        with_error(row.get("end_to_end_s"), row.get("end_to_end_error_s"), limit_s),
        *(duration_or_beyond(row[name], limit_s) if row["step"] else "-" for name in ("p50_s", "p99_s")),
        row["verdict"],
    )
