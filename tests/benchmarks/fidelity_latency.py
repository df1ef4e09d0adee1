"""The latency study's figures: its tools at their real lengths on the virtual cluster."""

import subprocess
import sys
from pathlib import Path

import polars as pl

from infra.results.open import open_store
from infra.results.read import scan
from tasks.analysis.latency import vm_rows
from tasks.records import TABLES
from tests.benchmarks.fidelity_rows import Figure, Row, at_least, at_most, share_around
from tests.benchmarks.fidelity_study import ROOT, changed_cluster

LATENCY = "latency study"
NO_STALLS = {"latency.stall_per_s": 0.0}


def measure_latency(store: Path, run_id: str, seed: int, changed: dict[str, float]) -> pl.DataFrame:
    """One row per tool and VM of a run of profile study's latency stage.

    Raises:
        subprocess.CalledProcessError: the run failed; what it said has been printed.
    """
    options = {"profile": "study", "stages": "golden-image,latency", "seed": str(seed)}
    options |= {"cluster": changed_cluster(store, run_id, changed), "store": str(store), "run-id": run_id}
    command = [sys.executable, "-m", "flows", "run", "--no-prefect", "--keep"]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    opened = open_store(str(store), writable=False)
    runs, histograms = (
        scan(opened, run_id, table, TABLES[table]) for table in ("latency_runs", "latency_histograms")
    )
    tools = ("jitterdebugger", "l2reflect")
    return pl.DataFrame([{"tool": tool, **row} for tool in tools for row in vm_rows(runs, histograms, tool)])


def latency_rows(found: pl.DataFrame) -> list[Row]:
    """The published maxima, each with the VM that stands for the study's run."""
    jitter, frames = (found.filter(pl.col("tool") == tool) for tool in ("jitterdebugger", "l2reflect"))
    maxima = sorted(jitter.get_column("max_us").to_list())
    rows = [
        share_around(
            _figure(f"jitter, run {i}, longest of 3 days", f"{published} us"), max_us, published, 0.1, "us"
        )
        for i, (published, max_us) in enumerate(zip((54, 55), maxima, strict=True), 1)
    ]
    frame_us = float(frames.get_column("max_us").max())  # type: ignore[arg-type]
    rows.append(share_around(_figure("l2reflect, longest of 5 days", "65 us"), frame_us, 65, 0.1, "us"))
    coverage = float(jitter.get_column("coverage").min())  # type: ignore[arg-type]
    rows.append(at_least(_figure("jitter, share of 3 days that was measured", "all"), coverage, 0.9999))
    return rows


def latency_switch_rows(off: pl.DataFrame) -> list[Row]:
    """Without stalls of the whole CPU no timer is late by a third of the published maxima."""
    longest = float(off.filter(pl.col("tool") == "jitterdebugger").get_column("max_us").max())  # type: ignore[arg-type]
    figure = Figure("jitter, longest of 3 days", "54 and 55 us", "latency.stall_per_s = 0", "study")
    return [at_most(figure, longest, 18, "us")]


def _figure(what: str, published: str) -> Figure:
    return Figure(what, published, LATENCY, "study")
