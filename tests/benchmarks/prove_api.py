"""`make prove-api`: boot storms on a real API server while things go wrong; brakes, memory, whole runs.

A testbed of its own, with virtual controllers that write down the truth, in a folder that is kept until every
row is there: a proof that was stopped goes on with the rows that are missing (of the same code only). Writes
docs/api-proof.md and exits with 1 when a row does not hold.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from infra import settings
from infra.errors import VirtscaleError
from infra.testbed import servers
from tests.benchmarks.api_rows import ROWS, Plan, Row
from tests.benchmarks.bench_figures import machine
from tests.benchmarks.kept import same_code
from tests.real.lab import Lab, lab
from tests.real.storm import Spec
from tests.real.strangers import settle_strangers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api-proof.md"
FAST = ROOT / "deployments" / "clusters" / "fast.toml"
ROOM = {
    "workers = 3": "workers = 16",
    "cpu = 16": "cpu = 64",
    "memory_gib = 64": "memory_gib = 512",
    "[csi]": "[csi]\nrestore_lock = false",
}
"""What preset `fast` needs to have room for 2,000 VMs, and to clone them in minutes."""
PARTS = ("infra", "tasks", "tests/real")
"""Rows of other code prove nothing about this one."""
RUN_ID = "proof"
MEMORY_REPEAT = 1000
WHOLE = Plan(vms=500, storms=20, large=2000)
HEAD = """<!-- written by `make prove-api` (tests/benchmarks/prove_api.py); do not edit -->
# Proven on a real API server

A real kube-apiserver with etcd; KubeVirt, CDI, CSI, scheduler and kubelet are played by virtual controllers
through its API, which write down when they did what. Each row of a fault is a boot storm of {vms} VMs in a
process of its own; the fault begins when a quarter of the instances exist. A row holds when every VM has one
record, every recorded moment lies within its error bound of what the controllers wrote down, and the verdict
names what happened and nothing else. There are no guests: storms end at Running. Whole runs have wide limits
for what a busy machine does to them; theirs is to get to the end and the report.
{short}
Machine: {machine}. `make prove-api`, {minutes:.0f} minutes in all.

| what is done | what came out | verdict of the storm or run | seconds | |
|---|---|---|---|---|
"""


@click.command()
@click.option(
    "--vms",
    default=WHOLE.vms,
    show_default=True,
    help="VMs of a storm; 100 at least, or the brakes see little.",
)
@click.option("--storms", default=WHOLE.storms, show_default=True, help="Storms of the memory row.")
@click.option("--large", default=WHOLE.large, show_default=True, help="VMs of the large run.")
@click.option("--work", type=click.Path(path_type=Path), help="Folder that is kept until all rows are there.")
@click.option("--only", default="", help="Rows to make, by name; the page is not written then.")
@click.option("--fresh", is_flag=True, help="Forget the rows that are there.")
def main(vms: int, storms: int, large: int, work: Path | None, only: str, fresh: bool) -> None:
    """Make the rows that are missing, and the page."""
    folder = (work or settings.state_dir() / "prove-api").resolve()
    if fresh:
        _forget(folder)
    try:
        rows = _rows(folder, Plan(vms, storms, large), only.split(",") if only else list(ROWS))
    except VirtscaleError as error:
        raise click.UsageError(str(error)) from None
    if not only:
        _write_page(rows, Plan(vms, storms, large))
        if not any(row.wrong for row in rows):
            _forget(folder)
    sys.exit(1 if any(row.wrong for row in rows) else 0)


def _rows(folder: Path, plan: Plan, names: list[str]) -> list[Row]:
    kept = folder / "rows" / f"{same_code(*PARTS)}-{plan.vms}-{plan.storms}-{plan.large}"
    kept.mkdir(parents=True, exist_ok=True)
    there = {file.stem: Row(*json.loads(file.read_text())) for file in kept.glob("*.json")}
    missing = [name for name in names if name not in there or there[name].wrong]
    if missing:
        with _at_work(folder) as here:
            for name in missing:
                there[name] = row = ROWS[name](here, _spec(folder, plan, name), plan)
                (kept / f"{name}.json").write_text(json.dumps(row))
                state = f"WRONG {row.wrong}" if row.wrong else "holds"
                click.echo(f"{name}: {state}, {row.wall_s:.0f} s: {row.came_out}; {row.verdict}")
    return [there[name] for name in names]


def _spec(folder: Path, plan: Plan, name: str) -> Spec:
    """Each row has storms of its own among the repeats of one run, whose VMs they share."""
    first = MEMORY_REPEAT if name == "memory" else list(ROWS).index(name) + 1
    return Spec(store=str(folder / "store"), run_id=RUN_ID, size=plan.vms, first=first)


@contextmanager
def _at_work(folder: Path) -> Iterator[Lab]:
    cluster = folder / "cluster.toml"
    text = FAST.read_text()
    for there, wanted in ROOM.items():
        text = text.replace(there, wanted)
    cluster.write_text(text)
    testbed = servers.up(folder / "testbed")
    try:
        with lab(testbed, folder, "--preset", str(cluster)) as here:
            if not (folder / "strangers").exists():
                settle_strangers(here)
            yield here
    finally:
        servers.down(folder / "testbed")


def _forget(folder: Path) -> None:
    servers.down(folder / "testbed")
    shutil.rmtree(folder, ignore_errors=True)


def _write_page(rows: list[Row], plan: Plan) -> None:
    sizes = f"{plan.vms} VMs, {plan.storms} storms, {plan.large} VMs in the large run"
    short = "" if plan == WHOLE else f"**Shortened** to {sizes}; a whole proof has {WHOLE}.\n"
    minutes = sum(row.wall_s for row in rows) / 60
    PAGE.write_text(
        HEAD.format(vms=plan.vms, short=short, machine=machine(), minutes=minutes)
        + "".join(_line(row) for row in rows)
    )


def _line(row: Row) -> str:
    state = f"**does not hold**: {'; '.join(row.wrong)}" if row.wrong else "holds"
    cells = (row.does, row.came_out, row.verdict, f"{row.wall_s:.0f}", state)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


if __name__ == "__main__":
    main()
