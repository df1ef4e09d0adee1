"""The first screen says what was measured, on what, and how far it can be trusted."""

from typing import Any

import polars as pl

from tasks.charts.look import Caption, decade_ticks
from tasks.report import build_report
from tasks.report.evidence import validity_section
from tasks.report.page import every_table
from tasks.report.setting import setting
from tests.unit.flows.stored import COMPARABILITY
from tests.unit.made_up import MANIFEST, frame, made_up

CELL = {
    "world": "virtual",
    "vms": 24,
    "vms_per_node": 1,
    "block_kib": 4,
    "pattern": "read",
    "n": 24,
    "n_ok": 24,
}


def cells(*verdicts: str) -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {**CELL, "phase": "baseline", "repeat": i, "attempt": 1, "verdict": verdict}
        for i, verdict in enumerate(verdicts)
    ]
    return frame("io_cells", rows)


def test_the_vm_its_storage_and_the_limits_are_told() -> None:
    assert setting({"comparability": COMPARABILITY}) == [
        "VMs of 1 core, 2 GiB memory and a disk of 21 GiB, "
        "storage class ceph-rbd (ReadWriteMany, Block, Immediate), cloned from 1 snapshot",
        "KubeVirt's client limits (queries a second/burst): 100/200",
    ]


def test_limits_that_differ_are_told_one_by_one_and_faults_are_no_secret() -> None:
    keys = {"tuning": {"rates": {"api": "100/200", "controller": "200/400"}}, "faults": "5d0c"}
    assert setting({"comparability": keys}) == [
        "KubeVirt's client limits (queries a second/burst): api 100/200, controller 200/400",
        "faults were injected",
    ]


def test_what_a_manifest_does_not_know_is_not_told() -> None:
    assert setting({}) == []
    assert setting({"comparability": {"vm": None, "tuning": None, "faults": None}}) == []


def test_it_is_on_the_first_screen() -> None:
    page = build_report(made_up((10, 20), stages=("deploy",)), MANIFEST | {"comparability": COMPARABILITY})
    assert "cloned from 1 snapshot" in page[: page.index("<h2>")]


def test_everything_that_has_a_verdict_is_counted_and_what_was_seen_beside_it() -> None:
    frames = every_table(made_up((10, 20), stages=("boot", "stop"), late=1)) | {
        "io_cells": cells("valid", "degraded")
    }
    section = validity_section(frames, Caption("virtual", "x"))
    assert section is not None
    assert section.answer == (
        "3 of 4 batches and 1 of 2 IO measurements are valid; lag of the watches not known, "
        "0 requests refused (429), 0 watches listed again."
    )


def test_io_alone_has_its_validity_too() -> None:
    section = validity_section(every_table({"io_cells": cells("valid")}), Caption("virtual", "x"))
    assert section is not None
    assert section.answer.startswith("1 of 1 IO measurement are valid")
    assert (section.charts, section.tables) == ([], [])


def test_a_logarithmic_axis_is_labelled_at_1_2_and_5() -> None:
    assert decade_ticks(150.0, 2500.0) == [200.0, 500.0, 1000.0, 2000.0]
