"""The study's IO figures: `virtscale run --stages io` on the virtual cluster, and what its cells say."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import tomli_w

from infra.results.open import open_store
from infra.results.read import scan
from tasks.analysis.io_answers import summaries
from tasks.records import TABLES
from tests.benchmarks.fidelity_rows import Figure, Row, at_least, at_most, same
from tests.benchmarks.fidelity_study import DEGRADED, ROOT, STUDY, changed_description

STAGES = "preflight,golden-image,io"
CELLS = 20
FEW, MORE = 129, 258
TWO_SIZES = ("io.vms_per_node=1,2",)
SPREAD_OUT = {"ceph.osds_per_image": 288}
NEVER_IDLE = {"ceph.idle_reads": "off"}

Cells = list[dict[str, Any]]


def measure_io(store: Path, run_id: str, seed: int, changed: Mapping[str, Any], sets: Sequence[str]) -> Cells:
    """Run the io stage in a process of its own on preset `study` with some constants `changed`.

    Raises:
        subprocess.CalledProcessError: the run failed; what it said has been printed.
    """
    cluster = "virtual:study"
    if changed:
        path = store / f"{run_id}.toml"
        path.write_text(tomli_w.dumps(changed_description("study", changed)))
        cluster = f"virtual:{path}"
    options = {"profile": "study", "stages": STAGES, "cluster": cluster, "seed": str(seed)}
    options |= {"store": str(store), "run-id": run_id}
    command = [sys.executable, "-m", "flows", "run", "--no-prefect", "--keep"]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    command += [part for each in sets for part in ("--set", each)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, DEGRADED):
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return read_io(str(store), run_id)


def read_io(store: str, run_id: str) -> Cells:
    """Every cell of a run, its load beside its baseline; none when it measured no IO."""
    cells: Any = scan(open_store(store, writable=False), run_id, "io_cells", TABLES["io_cells"])
    frame: pl.DataFrame = cells.lazy().collect()
    return summaries(frame).to_dicts()


def io_rows(cells: Cells) -> list[Row]:
    """Preset `study` against what the study and the derivations from it say."""
    loads = "all 20 cells: "
    return [
        same(
            _study(f"{loads}measured, every VM with a result", "20 cells"),
            _measured(cells),
            f"{CELLS} of {CELLS}",
        ),
        at_most(
            _study(f"{loads}largest throughput", "cap 10 GiB/s"), _largest(cells, "gib_per_s"), 10.0, "GiB/s"
        ),
        *(_reads(cells, block) for block in (4, 64)),
        at_least(_study("reads of 4 KiB, least IOPS of a size", "2.6 M"), _iops(cells), 2.6),
        same(
            _study(f"{loads}writes get no more than reads, p50 write > p50 read", "three replicas"),
            _count(cells, _writes_cost_more),
            "10 of 10",
        ),
        same(
            _study("reads under load quicker than the paced baseline, p50", "burst reads may be faster"),
            _count(cells, lambda read, _: read["p50_us"] < read["baseline_p50_us"]),
            "10 of 10",
        ),
        *(_tail(_study, cells, block) for block in (4, 64)),
    ]


def _study(what: str, published: str) -> Figure:
    return Figure(f"IO, {what}", published, STUDY, "study")


def _measured(cells: Cells) -> str:
    return f"{sum(each['n_ok'] == each['n'] for each in cells)} of {len(cells)}"


def _largest(cells: Cells, column: str) -> float | None:
    return max((each[column] for each in cells), default=None)


def _reads(cells: Cells, block: int) -> Row:
    figure = _study(f"reads of {block} KiB, least share of the cap at a size", "cap reached")
    shares = [
        each["gib_per_s"] / each["asked_gib_per_s"]
        for each in cells
        if (each["pattern"], each["block_kib"]) == ("read", block)
    ]
    return at_least(figure, min(shares, default=None), 0.99)


def _iops(cells: Cells) -> float | None:
    iops = [each["iops"] for each in cells if (each["pattern"], each["block_kib"]) == ("read", 4)]
    return min(iops) / 1e6 if iops else None


def _writes_cost_more(read: dict[str, Any], write: dict[str, Any]) -> bool:
    return bool(write["gib_per_s"] <= read["gib_per_s"] and write["p50_us"] > read["p50_us"])


def _count(cells: Cells, holds: Callable[[dict[str, Any], dict[str, Any]], bool]) -> str:
    """In how many pairs of a read and a write cell something holds."""
    found = {(each["pattern"], each["block_kib"], each["vms"]): each for each in cells}
    pairs = [
        (read, found["write", block, vms])
        for (pattern, block, vms), read in found.items()
        if pattern == "read" and ("write", block, vms) in found
    ]
    return f"{sum(holds(*pair) for pair in pairs)} of {len(pairs)}"


def ratio_of_tails(cells: Cells, block: int) -> float | None:
    """p99 of writes at 129 VMs over that at 258."""
    p99 = {
        each["vms"]: each["p99_us"]
        for each in cells
        if (each["pattern"], each["block_kib"]) == ("write", block)
    }
    return p99[FEW] / p99[MORE] if {FEW, MORE} <= p99.keys() else None


def _tail(figure: Callable[[str, str], Figure], cells: Cells, block: int) -> Row:
    what = f"p99 of {block} KiB writes, 129 VMs over 258"
    return at_least(figure(what, "few VMs: spikes"), ratio_of_tails(cells, block), 1.3)


def io_switch_rows(spread_out: Cells, never_idle: Cells) -> list[Row]:
    """What is left of two shapes without their mechanism, at 129 and 258 VMs."""
    every = "ceph.osds_per_image = 288"
    rows = [
        at_most(
            Figure(f"IO, p99 of {block} KiB writes, 129 VMs over 258", "at least 1.3", every, "study"),
            ratio_of_tails(spread_out, block),
            1.15,
        )
        for block in (4, 64)
    ]
    what = "IO, p50 of reads, load over paced baseline, least of a cell"
    idle = Figure(what, "below 1", "ceph.idle_reads = off", "study")
    ratios = [each["p50_us"] / each["baseline_p50_us"] for each in never_idle if each["pattern"] == "read"]
    # latencies of the model are known to one sixteenth of a doubling
    return [*rows, at_least(idle, min(ratios, default=None), 0.93)]
