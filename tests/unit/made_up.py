"""A made-up run for tests of charts and report: frames as the results store would give them."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import polars as pl

from tasks.analysis.percentiles import BatchKey, percentile_rows
from tasks.records import STEPS, TABLES, VM_TABLES

START = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS_S = {"deploy": 7200.0, "delete": 7200.0, "boot": 1800.0, "stop": 3600.0}
MANIFEST: dict[str, Any] = {
    "run_id": "7f3a-quiet-heron",
    "world": "virtual",
    "cluster": "virtual:study",
    "seed": 7,
    "started_at": "2026-01-01T00:00:00Z",
    "versions": {"virtscale": "0.1.0", "kubevirt": "v1.6.2", "kubernetes": "v1.33.1"},
    "profile": {"name": "study", "deploy": {"batches": [100, 200]}},
    "comparability": {
        "storage_class": "ceph-rbd",
        "sources": 1,
        "tuning": None,
        "versions": {"kubevirt": "v1.6.2"},
    },
}


def end_s(stage: str, n: int) -> float:
    """Seconds end to end of a made-up batch: linear, and boots bent after 1,600."""
    if stage == "boot":
        return 18 + n / 5 * (1.45 if n > 1600 else 1.0)
    return {"deploy": 2 + 0.4 * n, "delete": 1 + 0.15 * n, "stop": 5 + 0.05 * n}[stage]


def vm_rows(stage: str, n: int, late: int, seen: tuple[str, ...]) -> list[dict[str, Any]]:
    """VMs of a batch; the last `late` of them never reach the end."""
    random, steps = Random(n), STEPS[stage]
    rows = []
    for i in range(n):
        whole = end_s(stage, n) * (0.08 + 0.92 * (i + 1) / n)
        cuts = sorted(whole * random.uniform(0.3, 1) ** 0.5 for _ in steps[:-1])
        times: list[float | None] = [whole * 0.05, *cuts[1:], whole][-len(steps) :]
        if i >= n - late:
            times[-3:] = [None] * 3
        row = {f"{step}_s": t if step in seen else None for step, t in zip(steps, times, strict=True)}
        row |= {f"{step}_error_s": None if row[f"{step}_s"] is None else 0.1 for step in steps}
        state = "timeout" if i >= n - late else "ok"
        rows.append(
            {
                "world": "virtual", "batch": n, "repeat": 1, "attempt": 1, "vm": f"vm-{i:05}", "state": state,
                "reason": "vm_not_ok" if late and state != "ok" else None,
                "detail": "not ready <b>in time</b>" if late and state != "ok" else None,
                "requested_s": whole * 0.01, "boot_ordinal": 1 + i % 2, "node": f"worker-{i % 129:03}", **row,
            }
        )  # fmt: skip
    return rows


def batch_row(stage: str, n: int, late: int, at: datetime) -> dict[str, Any]:
    """The batch's own row."""
    return {
        "world": "virtual", "stage": stage, "batch": n, "repeat": 1, "attempt": 1, "released_at": at, "n": n,
        "n_ok": n - late, "n_timeout": late, "n_failed": 0, "n_lost": 0, "limit_s": LIMITS_S[stage],
        "end_to_end_s": None if late else end_s(stage, n), "end_to_end_error_s": None if late else 0.1,
        "verdict": "invalid" if late else "valid",
        "reasons": [f"vm_not_ok: {late} of {n:,} timeout"] if late else [],
    }  # fmt: skip


def frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame of the table's schema; a column left out is null."""
    empty = pl.from_arrow(TABLES[table].empty_table())
    assert isinstance(empty, pl.DataFrame)
    return pl.DataFrame(rows, schema=dict(empty.schema)) if rows else empty


def made_up(
    sizes: tuple[int, ...] = (100, 200, 400, 800, 1600, 3200, 6000),
    stages: tuple[str, ...] = ("deploy", "delete", "boot", "stop"),
    late: int = 0,
    unseen: tuple[str, ...] = (),
) -> dict[str, pl.DataFrame]:
    """Frames of a run; `late` VMs of the largest boot never finish, `unseen` steps are not observable."""
    at = START
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    for stage, n in [(stage, n) for stage in stages for n in sizes]:
        missing = late if stage == "boot" and n == max(sizes) else 0
        seen = tuple(step for step in STEPS[stage] if step not in unseen)
        vms = vm_rows(stage, n, missing, seen)
        rows[VM_TABLES[stage]] += vms
        rows["batches"].append(batch_row(stage, n, missing, at))
        found = percentile_rows(BatchKey(stage, n), vms, LIMITS_S[stage], seen)
        rows["percentiles"] += [{"world": "virtual", "attempt": 1, **row} for row in found]
        at += timedelta(seconds=end_s(stage, n) + 30)
        if stage == "boot":
            rows["placements"] += [placement(n, i) for i in range(129)]
    return {table: frame(table, found) for table, found in rows.items()}


def placement(n: int, i: int) -> dict[str, Any]:
    """VMs of one node, one more or less than even."""
    vms = n // 129 + (1 if i < n % 129 else 0) + (i % 3 - 1 if n > 1000 else 0)
    return {"world": "virtual", "batch": n, "repeat": 1, "attempt": 1, "node": f"worker-{i:03}", "vms": vms}
