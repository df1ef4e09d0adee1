"""PURE. The page of a trend: one self-contained HTML file over many runs."""

from collections.abc import Sequence

import polars as pl

from tasks.analysis.comparison_words import value_text
from tasks.analysis.trends import END_TO_END, Series, TrendRun, followed, trend_answer
from tasks.analysis.wording import listed
from tasks.charts.look import Caption, unchecked
from tasks.charts.trend import trend_chart
from tasks.report.page import rendered
from tasks.report.tables import NOT_OBSERVED, Cell, csv_uri


def trend_page(runs: Sequence[TrendRun], left_out: int, where: str) -> str:
    """One self-contained HTML file; `left_out` counts runs that are not finished or measured nothing."""
    worlds = sorted({run.world for run in runs})
    caption = Caption(listed(worlds), where)
    series = followed(runs)
    answers = {each: trend_answer(runs, each) or "" for each in series}
    with unchecked():
        charts = {
            f"chart-{_anchor(each)}": trend_chart(runs, each.kind, caption, answers[each]) for each in series
        }
    return rendered(
        "trend.html.j2",
        charts,
        world=listed(worlds).upper(),
        world_for_print="".join(letter for letter in listed(worlds).upper() if letter.isalnum()),
        where=where,
        runs=runs,
        left_out=left_out,
        sections=[(_anchor(each), _asked(each), answers[each]) for each in series],
        headings=headings(series),
        rows=[_cells(run, series) for run in runs],
        csv=csv_uri(_frame(runs)),
    )


def _asked(series: Series) -> str:
    return f"{'the ' if series.kind.stage == 'latency' else ''}{series.kind.title}"


def _anchor(series: Series) -> str:
    return series.kind.title.lower().replace(" ", "-")


def headings(series: Sequence[Series]) -> tuple[str, ...]:
    """Of the table of runs."""
    return (
        "run",
        "started",
        "profile",
        "verdict",
        "differs from the latest in",
        *map(_heading, series),
    )


def _heading(series: Series) -> str:
    """`deploy 6,000`, `IO 4 KiB read p99 2,064`, `jitterdebugger`."""
    kind = series.kind
    title = kind.what if kind.stage == "latency" else kind.title.removesuffix(f" {END_TO_END}")
    return f"{title} {series.size:,}" if series.size else title


def table_rows(runs: Sequence[TrendRun], series: Sequence[Series]) -> list[tuple[str, ...]]:
    """One row of text per run."""
    return [(*_facts(run), *(_value(run, each) for each in series)) for run in runs]


def _cells(run: TrendRun, series: Sequence[Series]) -> list[Cell]:
    """What was not measured sorts last, after what lies beyond a limit."""
    facts = [Cell(text, text, False) for text in _facts(run)]
    return facts + [Cell(_value(run, each), _sorted_by(run, each), True) for each in series]


def _sorted_by(run: TrendRun, series: Series) -> str:
    value = run.values.get(series)
    return "Infinity" if value is None and series in run.values else "" if value is None else repr(value)


def _facts(run: TrendRun) -> tuple[str, ...]:
    started = run.started_at[:16].replace("T", " ")
    return run.run_id, started, run.profile, run.verdict, ", ".join(run.differs) or NOT_OBSERVED


def _value(run: TrendRun, series: Series) -> str:
    if series not in run.values:
        return NOT_OBSERVED
    return value_text(run.values[series], run.limits[series], series.kind.unit)


def _frame(runs: Sequence[TrendRun]) -> pl.DataFrame:
    rows = [
        {
            "run_id": run.run_id,
            "started_at": run.started_at,
            "verdict": run.verdict,
            "group": run.group,
            **series.kind._asdict(),
            "vms": series.size or None,
            "value": value,
            "limit_s": run.limits[series],
        }
        for run in runs
        for series, value in run.values.items()
    ]
    return pl.DataFrame(rows, infer_schema_length=None)
