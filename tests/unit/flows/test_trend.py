"""`virtscale trend` over stored runs."""

import json
from pathlib import Path

import pytest

from infra.results.manifest import write_manifest
from infra.results.open import open_store
from tests.unit.flows.conftest import Call
from tests.unit.flows.stored import COMPARABILITY, manifest, store_run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("followed") / "store"
    store_run(folder, "c", factor=1.2, started_at="2026-01-04T00:00:00+00:00")
    store_run(folder, "a", started_at="2026-01-01T00:00:00+00:00")
    store_run(folder, "b", late=2, verdict="invalid", started_at="2026-01-02T00:00:00+00:00")
    other = {**COMPARABILITY, "storage_class": "cephfs"}
    store_run(folder, "d", comparability=other, started_at="2026-01-03T00:00:00+00:00")
    write_manifest(open_store(str(folder)), "e", manifest("e", finished_at=None, verdict=None))
    return folder


def test_runs_are_in_the_order_of_time_and_differences_from_the_latest_are_named(
    virtscale: Call, store: Path
) -> None:
    answer = virtscale("trend", "--store", str(store))
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["a", "b", "d", "c"]
    assert "storage_class" in lines[3]
    assert "1 runs are not finished or measured nothing" in answer.out


def test_the_latest_is_set_against_valid_comparable_runs_only(virtscale: Call, store: Path) -> None:
    found = json.loads(virtscale("trend", "--store", str(store), "--json").out)
    (deploy,) = [each for each in found["answers"] if each.startswith("Deploy of 80 VMs")]
    assert "in c, +" in deploy
    assert "against the median of 1 earlier comparable run" in deploy
    assert {run["run_id"]: run["group"] for run in found["runs"]} == {"a": 1, "b": 1, "d": 2, "c": 1}


def test_what_never_finished_is_null_with_its_limit(virtscale: Call, store: Path) -> None:
    found = json.loads(virtscale("trend", "--store", str(store), "--json").out)
    run = next(each for each in found["runs"] if each["run_id"] == "b")
    (boot,) = [each for each in run["values"] if (each["stage"], each["vms"]) == ("boot", 80)]
    assert (boot["value"], boot["unit"], boot["limit_s"]) == (None, "s", 7200.0)
    assert "> 2 h" in virtscale("trend", "--store", str(store)).out


def test_io_and_latency_are_followed_by_cell_and_tool(virtscale: Call, store: Path) -> None:
    found = json.loads(virtscale("trend", "--store", str(store), "--json").out)
    io = [
        "IO 4 KiB read IOPS of 48 VMs: 2,184,533 IOPS in c, -16.7 % against",
        "IO 4 KiB read p99 of 48 VMs: 960",
    ]
    latency = "Longest latency of jitterdebugger: 64.8 us in c, +20.0 % against the median of 1 earlier"
    assert [each.partition(" of ")[0] for each in found["answers"][:4]] == [
        "Deploy",
        "Delete",
        "Boot",
        "Stop",
    ]
    for said, begins in zip(found["answers"][4:], [*io, latency], strict=True):
        assert said.startswith(begins)
    run = next(each for each in found["runs"] if each["run_id"] == "a")
    assert [
        (each["what"], each["unit"], each["vms"]) for each in run["values"] if each["stage"] == "latency"
    ] == [("jitterdebugger", "us", None)]


def test_a_cell_without_a_result_is_a_gap_and_no_number(virtscale: Call, store: Path) -> None:
    found = json.loads(virtscale("trend", "--store", str(store), "--json").out)
    assert not [each for run in found["runs"] for each in run["values"] if "64 KiB" in each["what"]]


def test_every_number_has_its_chart(virtscale: Call, store: Path) -> None:
    virtscale("trend", "--store", str(store))
    page = (store / "reports/trend.html").read_text()
    for anchor in ("deploy-end-to-end", "io-4-kib-read-iops", "longest-latency-of-jitterdebugger"):
        assert f'href="#{anchor}"' in page
        assert f'<section id="{anchor}">' in page
        assert f'"chart-{anchor}":' in page


def test_the_page_needs_no_network(virtscale: Call, store: Path) -> None:
    virtscale("trend", "--store", str(store), "--last", "2")
    page = (store / "reports/trend.html").read_text()
    assert "<strong>VIRTUAL</strong> a trend over 2 runs" in page
    assert 'src="http' not in page


def test_no_part_of_a_table_is_read(virtscale: Call, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.results.read.read_part", lambda *_: pytest.fail("a part was read"))
    assert virtscale("trend", "--store", str(store)).code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--profile", "nope"), "no finished run of profile nope"),
        (("--last", "0"), "0 is not in the range"),
        (("--store", "nowhere"), "nowhere"),
    ],
)
def test_what_has_no_trend_is_one_line(
    virtscale: Call, store: Path, options: tuple[str, ...], said: str
) -> None:
    where = () if "--store" in options else ("--store", str(store))
    answer = virtscale("trend", *options, *where)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err
