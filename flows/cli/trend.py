"""`virtscale trend`: how times, IO and latencies went over the runs of a store."""

import json

import click

from flows.cli.options import json_option, store_option
from flows.cli.text import table
from infra.results.open import open_store
from tasks.analysis.trends import TrendRun, followed, trend_answer
from tasks.report.trend_page import headings, table_rows
from tasks.trending import Trend, read_trend, write_trend


@click.command("trend")
@store_option
@click.option("--profile", default="", metavar="NAME", help="Only runs of this profile.")
@click.option("--last", type=click.IntRange(1), help="Only the latest runs, so many.")
@json_option
def trend(*, store: str, profile: str, last: int | None, as_json: bool) -> None:
    """Follow times, IO and latencies over the finished runs of a store, and write a page with charts.

    Runs are joined only while everything that decides their numbers is equal.
    """
    opened = open_store(store, writable=False)
    found = read_trend(opened, profile, last or 0)
    page = write_trend(opened, found, store)
    if as_json:
        click.echo(json.dumps(as_object(found, page)))
        return
    series = [each for each in followed(found.runs) if each.kind.unit == "s"]
    click.echo(table([headings(series), *table_rows(found.runs, series)], range(5, 5 + len(series))))
    click.echo()
    for answer in answers(found):
        click.echo(answer)
    if found.left_out:
        click.echo(f"{found.left_out} runs are not finished or measured nothing")
    click.echo(f"page    {page}")


def answers(found: Trend) -> list[str]:
    """One sentence per number."""
    told = (trend_answer(found.runs, each) for each in followed(found.runs))
    return [each for each in told if each is not None]


def as_object(found: Trend, page: str) -> dict[str, object]:
    """The trend for machines; null is beyond the limit, what was not measured has no entry."""
    runs = [_run(each) for each in found.runs]
    return {"runs": runs, "left_out": found.left_out, "answers": answers(found), "page": page}


def _run(run: TrendRun) -> dict[str, object]:
    names = ("run_id", "started_at", "profile", "world", "verdict", "group")
    values = [
        {**series.kind._asdict(), "vms": series.size or None, "value": value, "limit_s": run.limits[series]}
        for series, value in run.values.items()
    ]
    return {**{name: getattr(run, name) for name in names}, "differs": list(run.differs), "values": values}
