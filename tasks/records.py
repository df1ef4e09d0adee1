"""PURE. One schema per stored table: column, unit (in the name), type, whether it may be null.

Columns named `X_s` of VM tables count from the batch's release on the observer's clock;
`X_error_s` is the width of the interval in which the step was observed; null means that the
step was not observed. `*_at` is UTC wall time, beside durations and never subtracted.
`run_id` is in the path of every part (`run_id=<id>`), not in its columns.
"""

import pyarrow as pa

SCHEMA_VERSION = 1
"""Raised when a column changes meaning; new nullable columns do not raise it."""

STATES = ("ok", "timeout", "failed", "lost")
VERDICTS = ("valid", "degraded", "invalid")
NOT_OK = "vm_not_ok"
VM_REASONS = (NOT_OK, "clone_failed", "node_lost", "foreign_change", "brake", "shard_lost")
"""Why a VM is not ok: codes that its batch's verdict has, too; the first where no other is known."""
QUANTILES = (50.0, 90.0, 95.0, 99.0, 100.0)

_S = pa.string()
_I = pa.int64()
_F = pa.float64()
_T = pa.timestamp("us", tz="UTC")
_B = pa.bool_()
_L = pa.list_(pa.string())

DEPLOY_STEPS = ("acknowledged", "pvc_bound", "datavolume_succeeded", "deployed")
DELETE_STEPS = ("gone", "volume_gone")
BOOT_STEPS = (
    "acknowledged",
    "vmi_created",
    "pod_scheduled",
    "vmi_scheduled",
    "running",
    "ip_known",
    "tcp_open",
    "ssh_banner",
    "ssh_ready",
)
STOP_STEPS = ("halted",)
STEPS = {"deploy": DEPLOY_STEPS, "delete": DELETE_STEPS, "boot": BOOT_STEPS, "stop": STOP_STEPS}
"""Observed steps per stage, in their usual order."""

VM_TABLES = {"deploy": "vm_deploys", "delete": "vm_deletes", "boot": "vm_boots", "stop": "vm_stops"}
"""The table that holds a stage's records, one row per VirtualMachine."""

_BATCH_KEYS = [("batch", _I), ("repeat", _I), ("attempt", _I)]
_CELL_KEYS = [
    ("vms", _I),
    ("vms_per_node", _I),
    ("block_kib", _I),
    ("pattern", _S),
    ("phase", _S),
    ("repeat", _I),
    ("attempt", _I),
]
_CELL_NAMES = tuple(name for name, _ in _CELL_KEYS)
_LATENCY_KEYS = [("tool", _S), ("vm", _S), ("cpu", _I), ("segment", _I), ("attempt", _I)]
_LATENCY_NAMES = tuple(name for name, _ in _LATENCY_KEYS)


def _schema(*columns: tuple[str, pa.DataType], keys: tuple[str, ...]) -> pa.Schema:
    required = {"world", *keys}
    fields = [("world", _S), *columns]
    columns_of_parquet = [pa.field(name, kind, nullable=name not in required) for name, kind in fields]
    return pa.schema(columns_of_parquet, metadata={"schema_version": str(SCHEMA_VERSION)})


def _vm_table(stage: str, *more: tuple[str, pa.DataType]) -> pa.Schema:
    steps = [(f"{step}{suffix}", _F) for step in STEPS[stage] for suffix in ("_s", "_error_s")]
    columns = [*_BATCH_KEYS, ("vm", _S), *more, ("state", _S), ("reason", _S), ("detail", _S)]
    columns += [("attempts", _I), ("requested_s", _F)]
    return _schema(*columns, *steps, keys=("batch", "repeat", "attempt", "vm", "state"))


TABLES: dict[str, pa.Schema] = {
    "runs": _schema(
        ("started_at", _T),
        ("finished_at", _T),
        ("cluster", _S),
        ("verdict", _S),
        ("reasons", _L),
        ("profile", _S),
        ("versions", _S),
        keys=("cluster", "verdict"),
    ),
    "checks": _schema(
        ("name", _S),
        ("status", _S),
        ("found", _S),
        ("needed", _S),
        ("hint", _S),
        keys=("name", "status"),
    ),
    "golden_images": _schema(
        ("name", _S),
        ("kind", _S),
        ("import_s", _F),
        ("snapshot_s", _F),
        ("ready_s", _F),
        ("size_gib", _F),
        ("clone_type", _S),
        ("canary_s", _F),
        keys=("name", "kind"),
    ),
    "batches": _schema(
        ("stage", _S),
        *_BATCH_KEYS,
        ("released_at", _T),
        ("n", _I),
        ("n_ok", _I),
        ("n_timeout", _I),
        ("n_failed", _I),
        ("n_lost", _I),
        ("asked_rate_per_s", _F),
        ("achieved_rate_per_s", _F),
        ("limit_s", _F),
        ("end_to_end_s", _F),
        ("end_to_end_error_s", _F),
        ("study_end_to_end_s", _F),
        ("quiesce_s", _F),
        ("leftovers", _I),
        ("verdict", _S),
        ("reasons", _L),
        keys=(
            "stage",
            "batch",
            "repeat",
            "attempt",
            "n",
            "n_ok",
            "n_timeout",
            "n_failed",
            "n_lost",
            "verdict",
        ),
    ),
    "percentiles": _schema(
        ("stage", _S),
        *_BATCH_KEYS,
        ("step", _S),
        ("basis", _S),
        ("q", _F),
        ("value_s", _F),
        ("error_s", _F),
        ("n", _I),
        ("n_ok", _I),
        ("n_censored", _I),
        ("limit_s", _F),
        ("method", _S),
        keys=(
            "stage",
            "batch",
            "repeat",
            "attempt",
            "step",
            "basis",
            "q",
            "n",
            "n_ok",
            "n_censored",
            "method",
        ),
    ),
    "vm_deploys": _vm_table("deploy", ("source", _S)),
    "vm_boots": _vm_table("boot", ("node", _S), ("boot_ordinal", _I)),
    "vm_deletes": _vm_table("delete"),
    "vm_stops": _vm_table("stop"),
    "placements": _schema(
        *_BATCH_KEYS,
        ("node", _S),
        ("vms", _I),
        ("free_share", _F),
        keys=("batch", "repeat", "attempt", "node", "vms"),
    ),
    "knobs": _schema(
        ("knob", _S),
        ("object", _S),
        ("field", _S),
        ("before", _S),
        ("desired", _S),
        ("effective", _S),
        ("status", _S),
        ("note", _S),
        keys=("knob", "status"),
    ),
    "io_cells": _schema(
        *_CELL_KEYS,
        ("asked_gib_per_s", _F),
        ("iops", _F),
        ("gib_per_s", _F),
        ("saturated", _B),
        ("depth", _I),
        ("p50_us", _F),
        ("p95_us", _F),
        ("p99_us", _F),
        ("max_us", _F),
        ("n", _I),
        ("n_ok", _I),
        ("start_skew_ms", _F),
        ("dataset_gib", _F),
        ("pause_us", _I),
        ("run_s", _I),
        ("released_at", _T),
        ("verdict", _S),
        ("reasons", _L),
        keys=(*_CELL_NAMES, "n", "n_ok", "verdict"),
    ),
    "io_vms": _schema(
        *_CELL_KEYS,
        ("vm", _S),
        ("node", _S),
        ("state", _S),
        ("reason", _S),
        ("asked_gib_per_s", _F),
        ("iops", _F),
        ("gib_per_s", _F),
        ("p50_us", _F),
        ("p95_us", _F),
        ("p99_us", _F),
        ("max_us", _F),
        ("start_skew_ms", _F),
        keys=(*_CELL_NAMES, "vm", "state"),
    ),
    "io_histograms": _schema(
        *_CELL_KEYS,
        ("vm", _S),
        ("lower_ns", _I),
        ("upper_ns", _I),
        ("count", _I),
        keys=(*_CELL_NAMES, "lower_ns", "upper_ns", "count"),
    ),
    "latency_runs": _schema(
        *_LATENCY_KEYS,
        ("duration_s", _F),
        ("samples", _I),
        ("min_us", _F),
        ("mean_us", _F),
        ("max_us", _F),
        ("overflow", _I),
        ("coverage", _F),
        ("state", _S),
        ("reason", _S),
        keys=(*_LATENCY_NAMES, "state"),
    ),
    "latency_histograms": _schema(
        *_LATENCY_KEYS,
        ("lower_ns", _I),
        ("upper_ns", _I),
        ("count", _I),
        keys=(*_LATENCY_NAMES, "lower_ns", "upper_ns", "count"),
    ),
    "observer": _schema(
        ("stage", _S),
        *_BATCH_KEYS,
        ("second", _I),
        ("watch_lag_ms", _F),
        ("loop_lag_ms", _F),
        ("throttled_s", _F),
        ("http_429", _I),
        ("http_5xx", _I),
        ("relists", _I),
        ("resumed", _I),
        ("lock_aborts", _I),
        ("client_throttled_s", _F),
        keys=("stage", "batch", "repeat", "attempt", "second"),
    ),
    "shards": _schema(
        ("stage", _S),
        *_BATCH_KEYS,
        ("shard", _I),
        ("vms", _I),
        ("state", _S),
        ("detail", _S),
        ("host", _S),
        ("pid", _I),
        ("clock_offset_ns", _I),
        ("clock_offset_error_ns", _I),
        ("released_late_ns", _I),
        keys=("stage", "batch", "repeat", "attempt", "shard", "vms", "state"),
    ),
    "evidence": _schema(
        ("stage", _S),
        *_BATCH_KEYS,
        ("vm", _S),
        ("kind", _S),
        ("name", _S),
        ("document", _S),
        keys=("stage", "batch", "repeat", "attempt", "vm", "kind", "name", "document"),
    ),
    "objects": _schema(
        ("kind", _S),
        ("namespace", _S),
        ("name", _S),
        ("uid", _S),
        ("intended_at", _T),
        keys=("kind", "name"),
    ),
}
"""Table name to schema; also the contract of `docs/reference/tables.md`."""
