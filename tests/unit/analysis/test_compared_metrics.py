"""Which readings two runs are compared by, and how wide each was observed."""

import polars as pl

from tasks.analysis.compared_metrics import readings_of
from tests.unit.made_up import frame, made_up


def test_a_percentile_has_its_own_error_bound_and_not_that_of_the_last_vm() -> None:
    frames = made_up((10, 20), late=1)
    found = {metric.name: readings for metric, readings in readings_of(frames).items()}
    last, median = found["boot end to end"][20, 1], found["boot p50"][20, 1]
    assert (last.value, last.error) == (None, None)
    assert median.value is not None
    assert median.error is not None
    assert 0 < median.error <= 0.11


def test_an_error_bound_that_was_not_stored_is_not_known() -> None:
    frames = made_up((10, 20))
    unknown = frames["batches"].with_columns(end_to_end_error_s=pl.lit(None, pl.Float64))
    found = {metric.name: readings for metric, readings in readings_of(frames | {"batches": unknown}).items()}
    assert {reading.error for reading in found["deploy end to end"].values()} == {None}
    assert None not in {reading.error for reading in found["deploy p50"].values()}


def test_a_latency_of_fio_is_known_to_a_bin() -> None:
    keys = {"world": "virtual", "vms": 129, "vms_per_node": 1, "block_kib": 4, "pattern": "read"}
    row = {**keys, "phase": "load", "repeat": 1, "attempt": 1, "n": 1, "n_ok": 1, "verdict": "valid"}
    cells = frame("io_cells", [{**row, "iops": 1000.0, "p50_us": 640.0, "p99_us": None}])
    found = readings_of({"batches": frame("batches", []), "io_cells": cells})
    errors = {metric.name: readings[129, 1].error for metric, readings in found.items()}
    assert errors == {"io 4 KiB read IOPS": 0.0, "io 4 KiB read p50": 10.0, "io 4 KiB read p99": 0.0}
