"""The report of a run: committed tables in, one HTML file in the store out."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import polars as pl

from infra.errors import StoreError
from infra.results.manifest import read_manifest
from infra.results.port import Cell, ObjectStore
from infra.results.read import last_complete, scan
from infra.results.run_results import ENDED_AT
from infra.world import World
from tasks.analysis.latency import judged_segments
from tasks.analysis.verdicts import worst
from tasks.records import TABLES
from tasks.run import RunRequest

CELL = Cell("report", "0", 1)
JUDGED = ("batches", "io_cells", "latency_runs")


def report_key(run_id: str) -> str:
    """Where the report of a run is in its store."""
    return f"reports/{run_id}/report.html"


def read_frames(store: ObjectStore, run_id: str) -> dict[str, pl.DataFrame]:
    """Every table of a run, last complete attempts only; a table without rows is an empty frame."""
    return {table: scan(store, run_id, table, schema) for table, schema in TABLES.items()}


def measured_tables(store: ObjectStore, run_id: str) -> dict[str, pl.DataFrame]:
    """The tables that hold verdicts, last complete attempts only."""
    return {table: scan(store, run_id, table, TABLES[table]) for table in JUDGED}


def judged(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """What has a verdict: stage, batch (of io cell and phase, of latency the segment), verdict, reasons."""
    cell = pl.format("{}-{}-{} {}", "vms", "block_kib", "pattern", "phase")
    cells = frames["io_cells"].select(pl.lit("io").alias("stage"), cell.alias("batch"), "verdict", "reasons")
    batches = frames["batches"].select("stage", pl.col("batch").cast(pl.String), "verdict", "reasons")
    return pl.concat([batches, cells, judged_segments(frames["latency_runs"])])


def run_verdict(batches: pl.DataFrame) -> tuple[str | None, list[str]]:
    """The worst verdict of the batches, and every reason with its batch; None when nothing was measured."""
    rows = batches.select("stage", "batch", "verdict", "reasons").to_dicts()
    reasons = [f"{row['stage']} {row['batch']}: {each}" for row in rows for each in row["reasons"] or ()]
    return (worst(row["verdict"] for row in rows) if rows else None), reasons


def rebuild_report(store: ObjectStore, run_id: str) -> str:
    """Write the report of what is committed so far; returns where it is.

    Raises:
        StoreError: the store has no such run.
    """
    # Imported here: charts are large, and what measures need not carry them.
    from tasks.report import build_report

    manifest, frames = _manifest(store, run_id), read_frames(store, run_id)
    manifest["verdict"], manifest["reasons"] = run_verdict(judged(frames))
    store.put(report_key(run_id), build_report(frames, manifest).encode())
    return store.address(report_key(run_id))


def write_pictures(store: ObjectStore, run_id: str) -> list[str]:
    """Write every chart of what is committed so far as SVG and PNG beside the report; returns where they are.

    Raises:
        StoreError: the store has no such run.
    """
    # Imported here: the renderer is large, and only pictures need it.
    from tasks.report.pictures import report_pictures

    folder = report_key(run_id).rpartition("/")[0]
    written = []
    for name, body in report_pictures(read_frames(store, run_id), _manifest(store, run_id)):
        store.put(f"{folder}/{name}", body)
        written.append(store.address(f"{folder}/{name}"))
    return written


def _manifest(store: ObjectStore, run_id: str) -> dict[str, Any]:
    manifest = read_manifest(store, run_id)
    if manifest is None:
        raise StoreError(f"run {run_id}: the store has no such run (virtscale runs lists them)")
    return manifest


def write_report(world: World, request: RunRequest) -> dict[str, Any]:
    """The report stage: commit the run's own row where something was measured, then write the report."""
    store = world.results.store
    verdict, reasons = run_verdict(judged(measured_tables(store, request.run_id)))
    summary = {"verdict": verdict, "reasons": reasons}
    if verdict is not None:
        attempt = world.results.begin(CELL)
        attempt.add("runs", [_row(world, request, summary) | {"finished_at": _finished_at(world)}])
        attempt.commit(summary)
    return {**summary, "report": rebuild_report(store, request.run_id)}


def _finished_at(world: World) -> datetime:
    """When the last measured stage was done, by the clock of the copy of the cluster that it worked on."""
    done = last_complete(world.results.commits())
    ends = [each.summary.get(ENDED_AT) for each in done if each.cell.stage not in ("report", "clean")]
    return max((datetime.fromisoformat(end) for end in ends if end), default=world.clock.wall())


def _row(world: World, request: RunRequest, summary: dict[str, Any]) -> dict[str, Any]:
    """The run in the clock of its world: what is real (its start, its cost) is in the manifest."""
    manifest = read_manifest(world.results.store, request.run_id)
    if manifest is None:
        raise StoreError(f"run {request.run_id}: its manifest is gone from the store")
    return {
        "started_at": datetime.fromisoformat(manifest["world_started_at"]),
        "cluster": request.cluster,
        **summary,
        "profile": json.dumps(request.profile.model_dump(mode="json"), sort_keys=True),
        "versions": json.dumps(manifest["versions"], sort_keys=True),
    }
