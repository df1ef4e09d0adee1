"""`virtscale report`: write the report of a run again from what is stored."""

import json

import click

from flows.cli.options import json_option, store_option
from infra.results.open import open_store
from tasks.report_stage import rebuild_report


@click.command("report")
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def report(*, run_id: str, store: str, as_json: bool) -> None:
    """Write the report of RUN again, also of one that is not finished."""
    address = rebuild_report(open_store(store), run_id)
    click.echo(json.dumps({"run_id": run_id, "report": address}) if as_json else address)
