"""`make fidelity`: published figures against those of the virtual cluster, at full sizes.

Prints the table, writes it to docs/fidelity.md, and exits with 1 when a row fails.
"""

import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from infra.errors import VirtscaleError
from tests.benchmarks.fidelity_io import (
    NEVER_IDLE,
    SPREAD_OUT,
    TWO_SIZES,
    Cells,
    io_rows,
    io_switch_rows,
    measure_io,
)
from tests.benchmarks.fidelity_labs import lab_rows, lab_switch_rows
from tests.benchmarks.fidelity_latency import NO_STALLS, latency_rows, latency_switch_rows, measure_latency
from tests.benchmarks.fidelity_limits import limits_rows, measured_limits
from tests.benchmarks.fidelity_page import page
from tests.benchmarks.fidelity_rows import Row, plain
from tests.benchmarks.fidelity_study import (
    ROOT,
    Study,
    finished_seed,
    measure,
    read_study,
    study_rows,
    switch_rows,
)

LARGEST = ("boot.batches=6000",)
SHAPES = ("deploy.batches=6000", "boot.batches=1600,3200")
IMAGES_50 = {"nodes.status_max_images": 50}
SWITCHED_OFF = {"csi.restore_lock": False, "attach.overload": False}


@click.command()
@click.option("--store", help="Store of a finished run of the study, to be read instead of running it.")
@click.option("--run-id", help="Which run of that store.")
@click.option("--seed", type=int, default=7, show_default=True, help="Seed of everything that is run.")
@click.option(
    "--page",
    "path",
    default=str(ROOT / "docs" / "fidelity.md"),
    show_default="docs/fidelity.md",
    help="File to write.",
)
def main(store: str | None, run_id: str | None, seed: int, path: str) -> None:
    """Compare the virtual cluster with published figures."""
    if (store is None) != (run_id is None):
        raise click.UsageError("--store and --run-id go together")
    try:
        found = finished_seed(store, run_id) if store and run_id else None
        click.echo("studies and labs at full sizes: some minutes", err=True)
        published, switches = compared(seed, (store, run_id) if store and run_id else None)
    except VirtscaleError as error:
        raise click.UsageError(str(error)) from None
    Path(path).write_text(page(published, switches, seed if found is None else found), encoding="utf-8")
    failed = [row for row in (*published, *switches) if not row.passed]
    print(plain([*published, *switches]))
    print(f"{len(published) + len(switches)} rows, {len(failed)} failed; {path}")
    sys.exit(1 if failed else 0)


def compared(seed: int, finished: tuple[str, str] | None) -> tuple[list[Row], list[Row]]:
    """Rows of published figures and rows of switches; two processes share the work."""
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder, ProcessPoolExecutor(2, mp_context=spawn) as pool:
        store = Path(folder)

        def run(run_id: str, changed: Mapping[str, Any], sets: Sequence[str]) -> Future[Study]:
            return pool.submit(measure, store, run_id, seed, changed, sets)

        def run_io(run_id: str, changed: Mapping[str, Any], sets: Sequence[str]) -> Future[Cells]:
            return pool.submit(measure_io, store, run_id, seed, changed, sets)

        cells = run_io("io", {}, ())
        spread_out = run_io("io-spread-out", SPREAD_OUT, TWO_SIZES)
        never_idle = run_io("io-never-idle", NEVER_IDLE, TWO_SIZES)
        whole = pool.submit(read_study, *finished) if finished else run("study", {}, ())
        images = run("images-50", IMAGES_50, LARGEST)
        off = run("switched-off", SWITCHED_OFF, SHAPES)
        limits = measured_limits(run)
        labs = pool.submit(lab_rows, seed)
        lab_switches = pool.submit(lab_switch_rows, seed)
        latency = pool.submit(measure_latency, store, "latency", seed, {})
        no_stalls = pool.submit(measure_latency, store, "no-stalls", seed, NO_STALLS)
        published = [*study_rows(whole.result(), images.result()), *labs.result()]
        published += limits_rows({name: each.result() for name, each in limits.items()})
        published += [*io_rows(cells.result()), *latency_rows(latency.result())]
        switches = [*switch_rows(off.result()), *lab_switches.result()]
        switches += io_switch_rows(spread_out.result(), never_idle.result())
        return published, [*switches, *latency_switch_rows(no_stalls.result())]


if __name__ == "__main__":
    main()
