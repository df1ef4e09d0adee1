"""The report of a run: committed tables in, one HTML file in the store out."""

import json
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import StoreError
from infra.results.commits import read_commits
from infra.results.manifest import read_manifest
from infra.results.open import open_store, spool_folder
from infra.results.port import Cell, ObjectStore
from infra.results.read import last_complete, scan_tables
from infra.results.run_results import ENDED_AT, open_results
from tasks.analysis.latency import judged_segments
from tasks.analysis.verdicts import worst
from tasks.records import TABLES

if TYPE_CHECKING:
    from tasks.run import RunRequest

CELL = Cell("report", "0", 1)
JUDGED = {name: TABLES[name] for name in ("batches", "io_cells", "latency_runs")}
SHOWN = {name: schema for name, schema in TABLES.items() if name not in {"runs", "objects", "io_histograms"}}
"""What a report is made of; those left out are as many rows as all the others together."""


def report_key(run_id: str) -> str:
    """Where the report of a run is in its store."""
    return f"reports/{run_id}/report.html"


def read_frames(store: ObjectStore, run_id: str) -> dict[str, pl.DataFrame]:
    """The tables of a report, last complete attempts only; one without rows is an empty frame."""
    return scan_tables(store, run_id, SHOWN)


def measured_tables(store: ObjectStore, run_id: str) -> dict[str, pl.DataFrame]:
    """The tables that hold verdicts, last complete attempts only."""
    return scan_tables(store, run_id, JUDGED)


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
    manifest, frames = _manifest(store, run_id), read_frames(store, run_id)
    verdict, reasons = run_verdict(judged(frames))
    return _write(store, frames, manifest | {"verdict": verdict, "reasons": reasons})


def _write(store: ObjectStore, frames: Mapping[str, pl.DataFrame], manifest: dict[str, Any]) -> str:
    # Imported here: charts are large, and what measures need not carry them.
    from tasks.report import build_report

    key = report_key(manifest["run_id"])
    store.put(key, build_report(frames, manifest).encode())
    return store.address(key)


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


def write_report(request: "RunRequest") -> dict[str, Any]:
    """The report stage: commit the run's own row where something was measured, then write the report.

    It needs the results alone: a report is written although the cluster is gone.

    Raises:
        StoreError: the store has no such run, or cannot be written.
    """
    store, run_id = open_store(request.store), request.run_id
    manifest, frames = _manifest(store, run_id), read_frames(store, run_id)
    verdict, reasons = run_verdict(judged(frames))
    summary = {"verdict": verdict, "reasons": reasons}
    if verdict is not None:
        row = _row(request, manifest, _finished_at(store, manifest))
        _commit(store, manifest, row, summary)
    return {**summary, "report": _write(store, frames, manifest | summary)}


def _commit(
    store: ObjectStore, manifest: Mapping[str, Any], row: dict[str, Any], summary: dict[str, Any]
) -> None:
    run_id = manifest["run_id"]
    opened = open_results(store, run_id, manifest["world"], TABLES, spool_folder(store, run_id))
    with closing(opened) as results:
        attempt = results.begin(CELL)
        attempt.add("runs", [{**row, **summary}])
        attempt.commit(summary)


def _finished_at(store: ObjectStore, manifest: Mapping[str, Any]) -> datetime | None:
    """When the last measured stage was done, by the clock of its world; None: not known."""
    done = last_complete(read_commits(store, manifest["run_id"]))
    ends = [each.summary.get(ENDED_AT) for each in done if each.cell.stage not in ("report", "clean")]
    return max((datetime.fromisoformat(end) for end in ends if end), default=None)


def _row(request: "RunRequest", manifest: Mapping[str, Any], finished_at: datetime | None) -> dict[str, Any]:
    """The run in the clock of its world: what is real (its start, its cost) is in the manifest."""
    return {
        "started_at": datetime.fromisoformat(manifest["world_started_at"]),
        "finished_at": finished_at,
        "cluster": request.cluster,
        "profile": json.dumps(request.profile.model_dump(mode="json"), sort_keys=True),
        "versions": json.dumps(manifest["versions"], sort_keys=True),
    }
