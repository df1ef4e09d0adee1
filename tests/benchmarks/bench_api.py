"""`make bench-api`: 2,000 VirtualMachines created and observed on a real API server, ours against the least.

Each round runs both contenders, each in a process and a namespace of its own, on one testbed. VMs stay until
the end, so who goes first changes from round to round (A B B A): take an even number of rounds. Wall and CPU
are those of creating and observing; memory is the peak of the whole process.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from infra.errors import ClusterError, VirtscaleError
from infra.testbed import apply, servers
from infra.testbed.state import State, for_kubeconfig
from tests.benchmarks.bench_figures import Figure, against_target, load, on_this_machine, show
from tests.benchmarks.bench_job import Cost, cost_of

OURS, MINIMAL = "tests.benchmarks.bench_api_ours", "tests.benchmarks.bench_api_minimal"
WARM_UP = 200
LIMITS = {"wall": 1.1, "CPU": 2.0, "peak RSS": 2.5}
HANDLING_TARGET_MS = 50.0


class Round(NamedTuple):
    """One contender's turn."""

    measured: dict[str, float]
    process: Cost


class Load(NamedTuple):
    """The work of one turn."""

    n: int
    parallel: int


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path, exists=True), help="Of a testbed that runs.")
@click.option("--vms", default=2000, show_default=True, help="VirtualMachines of one turn.")
@click.option("--parallel", default=50, show_default=True, help="Creates at a time.")
@click.option("--rounds", default=6, show_default=True, help="Turns of each contender.")
def main(kubeconfig: Path | None, vms: int, parallel: int, rounds: int) -> None:
    """Measure the adapter on a testbed: its own, unless --kubeconfig names one."""
    try:
        with _testbed(kubeconfig) as testbed, on_this_machine():
            good = show(_figures(testbed, Load(vms, parallel), rounds))
    except VirtscaleError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(0 if good else 1)


@contextmanager
def _testbed(kubeconfig: Path | None) -> Iterator[State]:
    if kubeconfig:
        yield for_kubeconfig(kubeconfig)
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "testbed"
        try:
            yield servers.up(home)
        finally:
            servers.down(home)
            servers.forget(home)


def _figures(testbed: State, work: Load, rounds: int) -> list[Figure]:
    names: list[str] = []
    try:
        for contender in (OURS, MINIMAL):
            _turn(testbed, contender, names, Load(WARM_UP, work.parallel))
        turns: dict[str, list[Round]] = {OURS: [], MINIMAL: []}
        for number in range(rounds):
            for contender in (OURS, MINIMAL) if number % 2 == 0 else (MINIMAL, OURS):
                turns[contender].append(_turn(testbed, contender, names, work))
                _say(contender, turns[contender][-1])
    finally:
        for name in names:
            apply.request(testbed, "DELETE", f"/api/v1/namespaces/{name}")
    return _compared(turns[OURS], turns[MINIMAL], work)


def _turn(testbed: State, contender: str, names: list[str], work: Load) -> Round:
    names.append(_new_namespace(testbed))
    words = [str(testbed.folder), names[-1], str(work.n), str(work.parallel)]
    cost = cost_of([sys.executable, "-m", contender, *words])
    return Round(json.loads(cost.output), cost)


def _new_namespace(testbed: State) -> str:
    """A namespace that the server names, so that no two benchmarks meet."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "bench-"}}
    status, answer = apply.request(testbed, "POST", "/api/v1/namespaces", manifest)
    if status != 201:
        raise ClusterError(f"{testbed.server}: a namespace was refused with {status}: {answer}")
    return str(answer["metadata"]["name"])


def _say(contender: str, turn: Round) -> None:
    click.echo(f"  {contender}: {json.dumps(turn.measured)}, load average {load()}", err=True)


def _compared(ours: list[Round], minimal: list[Round], work: Load) -> list[Figure]:
    n = f"n {len(ours)} x {work.n:,} VMs, {work.parallel} at a time, median"

    def figure(what: str, unit: str, values: tuple[list[float], list[float]]) -> Figure:
        mine, theirs = values
        limit = LIMITS.get(what)
        return Figure(f"API server: {what}", median(mine), unit, median(theirs), "minimal aiohttp", n, limit)

    return [
        figure("wall", "s", _both(ours, minimal, "wall_s")),
        figure("CPU", "s", _both(ours, minimal, "cpu_s")),
        figure("peak RSS", "MiB", _both(ours, minimal, "rss_mib")),
        figure("CPU with start and imports", "s", _processes(ours, minimal)),
        figure("sent to seen, p50", "ms", _both(ours, minimal, "seen_p50_ms")),
        against_target(
            "API server: watch event received to noted, p99",
            median(each.measured["handling_p99_ms"] for each in ours),
            "ms",
            HANDLING_TARGET_MS,
            n,
        ),
    ]


def _both(ours: list[Round], minimal: list[Round], key: str) -> tuple[list[float], list[float]]:
    return [each.measured[key] for each in ours], [each.measured[key] for each in minimal]


def _processes(ours: list[Round], minimal: list[Round]) -> tuple[list[float], list[float]]:
    return [each.process.cpu_s for each in ours], [each.process.cpu_s for each in minimal]


if __name__ == "__main__":
    main()
