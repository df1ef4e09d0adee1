"""`virtscale report`: write the report of a run again from what is stored."""

import json

import click

from flows.cli.options import json_option, store_option
from infra.results.open import open_store
from tasks.report_stage import rebuild_report, write_pictures


@click.command("report")
@click.argument("run_id", metavar="RUN")
@store_option
@click.option("--pictures", is_flag=True, help="Write every chart as SVG and PNG, too.")
@json_option
def report(*, run_id: str, store: str, pictures: bool, as_json: bool) -> None:
    """Write the report of RUN again, also of one that is not finished."""
    opened = open_store(store, writable=False)
    address = rebuild_report(opened, run_id)
    files = write_pictures(opened, run_id) if pictures else []
    if as_json:
        click.echo(json.dumps({"run_id": run_id, "report": address, "pictures": files}))
    else:
        click.echo("\n".join([address, *files]))
