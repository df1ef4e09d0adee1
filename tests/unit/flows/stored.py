"""Runs as a store holds them, made up: manifests, commits and the tables that comparisons read."""

from pathlib import Path
from random import Random
from typing import Any

from infra.results.manifest import write_manifest
from infra.results.open import open_store, spool_folder
from infra.results.port import Cell
from infra.results.run_results import open_results
from tasks.profile import Profile
from tasks.records import TABLES
from tests.unit.made_up import made_up

SIZES = (10, 20, 40, 80)
COMPARABILITY: dict[str, Any] = {
    "world": "virtual",
    "versions": {"kubernetes": "v1.31.6", "kubevirt": "v1.6.2", "cdi": "v1.63.1"},
    "tuning": {"rates": {"api": "100/200"}},
    "vm": {"cores": 1, "memory_gib": 2.0, "disk_gib": 21},
    "vm_manifest_sha256": "8b47",
    "golden_image": {"url": "docker://quay.example/rhel9:9.2", "size_gib": 21},
    "golden_sources": 1,
    "storage_class": "ceph-rbd",
    "volume_binding_mode": "Immediate",
    "access_mode": "ReadWriteMany",
    "volume_mode": "Block",
    "namespaces": {"of_vms": 1, "clones_cross": True},
    "caller": "in process",
    "prober_path": "in process",
    "end_points": {"deploy": "deployed", "boot": "ssh_ready"},
    "background_pods": 0,
    "workload": {"deploy": {"batches": list(SIZES)}},
    "faults": None,
}


def manifest(run_id: str, **changes: Any) -> dict[str, Any]:
    """Of a finished, valid run."""
    return {
        "run_id": run_id,
        "world": "virtual",
        "cluster": "virtual:study",
        "started_at": "2026-01-01T00:00:00.000+00:00",
        "finished_at": "2026-01-01T00:10:00.000+00:00",
        "profile": Profile(name="small").model_dump(mode="json"),
        "versions": {"virtscale": "0.1.0"},
        "comparability": COMPARABILITY,
        "verdict": "valid",
        "reasons": [],
        "objects_left": False,
        "sessions": [],
        **changes,
    }


def store_run(folder: Path, run_id: str, *, factor: float = 1.0, late: int = 0, **changes: Any) -> None:
    """A run of deploys, boots and their ends; every time is `factor` times as long, give or take 1 %."""
    store, random = open_store(str(folder)), Random(run_id)
    results = open_results(store, run_id, "virtual", TABLES, spool_folder(store, run_id))
    frames = made_up(SIZES, late=late)
    for stage, after in (("deploy", "delete"), ("boot", "stop")):
        for size in SIZES:
            attempt, scale = results.begin(Cell(stage, str(size))), factor * random.uniform(0.99, 1.01)
            rows = {
                table: _rows(frames, table, (stage, after, size), scale)
                for table in ("batches", "percentiles")
            }
            for table, found in rows.items():
                attempt.add(table, found)
            attempt.commit(_summary(rows["batches"], stage, after))
    for cell, summary in {**io_summaries(factor), **latency_summaries(factor)}.items():
        results.begin(cell).commit(summary)
    results.close()
    write_manifest(store, run_id, manifest(run_id, **changes))


def io_summaries(factor: float) -> dict[Cell, dict[str, Any]]:
    """Of one cell at two sizes, as the io stage commits them, and of one that gave no result."""
    cells: dict[str, dict[str, float | None]] = {
        "24-4-read": {"iops": 2_621_440.0 / factor, "p99_us": 400.0 * factor},
        "48-4-read": {"iops": 2_621_440.0 / factor, "p99_us": 800.0 * factor},
        "24-64-write": {"iops": None, "p99_us": None},
    }
    return {Cell("io", name): {"stage": "io", "cell": name, **numbers} for name, numbers in cells.items()}


def latency_summaries(factor: float) -> dict[Cell, dict[str, Any]]:
    """Of a segment and of all of them, as the latency stage commits them."""
    segment = {"stage": "latency", "tool": "jitterdebugger", "segment": 1, "max_us": 54.0 * factor}
    whole = {"stage": "latency", "tool": "jitterdebugger", "segments": 1, "max_us": 54.0 * factor}
    return {Cell("latency", "jitterdebugger-1"): segment, Cell("latency", "jitterdebugger"): whole}


def _rows(frames: Any, table: str, which: tuple[str, str, int], scale: float) -> list[dict[str, Any]]:
    stage, after, size = which
    rows = [r for r in frames[table].to_dicts() if r["stage"] in {stage, after} and r["batch"] == size]
    times = {"end_to_end_s", "value_s"}
    unset = {"world", "repeat", "attempt"}
    return [
        {
            name: value * scale if name in times and value else value
            for name, value in row.items()
            if name not in unset
        }
        for row in rows
    ]


def _summary(batches: list[dict[str, Any]], stage: str, after: str) -> dict[str, Any]:
    of = {row["stage"]: row for row in batches}
    first = of[stage]
    keys = ("stage", "batch", "n", "n_ok", "end_to_end_s")
    return {**{key: first[key] for key in keys}, "repeat": 1, f"{after}_s": of[after]["end_to_end_s"]}
