"""`virtscale compare`: is a run worse than its baseline, by how much, and how sure is that."""

import json
from typing import Any

import click

from flows.cli.options import json_option, store_option
from flows.cli.text import table
from infra.results.open import open_store
from tasks.analysis.comparability import KEYS
from tasks.analysis.comparison_words import HEADINGS, as_object, rows
from tasks.analysis.run_comparison import RunComparison
from tasks.comparing import compare_runs, write_comparison

NOT_VALID = 3
REGRESSION = 4


@click.command("compare")
@click.argument("baseline", metavar="BASELINE")
@click.argument("run_id", metavar="RUN")
@store_option
@click.option("--baseline-store", metavar="FOLDER", help="Store of the baseline, if it is another.")
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="KEY,...",
    help="Compare although these keys differ.",
)
@json_option
def compare(*, baseline: str, run_id: str, store: str, as_json: bool, **options: Any) -> int:
    """Compare RUN with BASELINE, metric by metric, and write a page beside RUN's report.

    Both must be finished and agree in everything that decides their numbers. Thresholds are those of
    the baseline's profile ([compare]).
    """
    opened = open_store(store, writable=False)
    elsewhere = options["baseline_store"]
    other = open_store(elsewhere, writable=False) if elsewhere else opened
    found = compare_runs((other, baseline), (opened, run_id), keys_of(options["allowed"]))
    page = write_comparison(opened, found)
    code = exit_code(found)
    if as_json:
        click.echo(json.dumps({**as_object(found), "page": page, "exit_code": code}))
    else:
        show(found, page)
    return code


def keys_of(allowed: tuple[str, ...]) -> set[str]:
    """The keys that `--allow` names.

    Raises:
        BadParameter: one is no key.
    """
    keys = {key.strip() for each in allowed for key in each.split(",") if key.strip()}
    for key in sorted(keys - set(KEYS)):
        raise click.BadParameter(f"{key} is no key; there are {', '.join(KEYS)}", param_hint="--allow")
    return keys


def exit_code(found: RunComparison) -> int:
    """0; 3 when a run is not valid, whatever its numbers say; 4 when one of them is a regression."""
    if not found.is_valid:
        return NOT_VALID
    return REGRESSION if found.regressions else 0


def show(found: RunComparison, page: str) -> None:
    """The table, what has to be said with it, and the result in the last lines."""
    click.echo(table([HEADINGS, *rows(found.metrics)], range(1, 8)))
    click.echo()
    for each in found.differing_told:
        click.echo(f"allowed although {each}")
    for note in found.notes:
        click.echo(note)
    click.echo(f"result  {found.answer}")
    click.echo(f"page    {page}")
