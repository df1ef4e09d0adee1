"""`make bench`: virtscale itself, measured; one line per figure, and exit 1 when one misses its target.

`python -m tests.benchmarks.bench --only loop` measures one part. Absolute figures depend on the machine
and on what else it does, so both are printed; ratios come from one run in which both contenders took turns.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from infra.errors import VirtscaleError
from tests.benchmarks.bench_figures import Figure, on_this_machine, show
from tests.benchmarks.bench_job import RUN_ID, job_figures, report_figures
from tests.benchmarks.bench_loop import loop_figures
from tests.benchmarks.bench_results import results_figures
from tests.benchmarks.bench_store import store_figures

SMALL: dict[str, Callable[[], list[Figure]]] = {
    "loop": loop_figures,
    "store": store_figures,
    "results": results_figures,
}
PARTS = (*SMALL, "job", "report")


@click.command()
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Measure only this; may be repeated.")
@click.option("--store", help="Store of a finished run of the study: its report is measured, no job is run.")
@click.option("--run-id", default=RUN_ID, show_default=True, help="Which run of that store.")
def main(only: Sequence[str], store: str | None, run_id: str) -> None:
    """Measure virtscale itself."""
    parts = only or PARTS
    try:
        with on_this_machine():
            good = [show(SMALL[part]()) for part in parts if part in SMALL]
            good += _whole(parts, store, run_id)
    except VirtscaleError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(0 if all(good) else 1)


def _whole(parts: Sequence[str], store: str | None, run_id: str) -> list[bool]:
    """The job, and the report of the run that it leaves or of the one that is there already."""
    if store:
        return [show(report_figures(Path(store), run_id))] if "report" in parts else []
    if not {"job", "report"} & set(parts):
        return []
    with tempfile.TemporaryDirectory() as folder:
        good = [show(job_figures(Path(folder)))]
        if "report" in parts:
            good.append(show(report_figures(Path(folder), RUN_ID)))
    return good


if __name__ == "__main__":
    main()
