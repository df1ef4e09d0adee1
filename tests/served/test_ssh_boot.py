"""A boot storm that goes on to SSH: a served cluster, and end points at the addresses that we assign."""

import time
from pathlib import Path

import polars as pl
import pytest

from flows.__main__ import exit_code_of
from infra.served.access import CONTEXT
from tests.benchmarks.bench_ssh import OWN, PORT, endpoints, say
from tests.benchmarks.ssh_endpoints import EndPoint
from tests.served.conftest import Server

KINDS = ("good", "good", "silent", "slow")


@pytest.mark.slow
def test_a_storm_goes_on_to_ssh_and_says_why_a_guest_did_not_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path / "state"))
    plan: list[EndPoint] = [
        {"vm": f"ssh-b-{i:04d}", "address": f"127.{OWN}.0.{10 + i}", "kind": kind, "at_s": 0.0}
        for i, kind in enumerate(KINDS)
    ]
    guests = ("guests.path=ssh", f"guests.cidr=127.{OWN}.0.0/16", f"guests.port={PORT}")
    sets = (*guests, "boot.batches=[4]", "boot.limit_s=20", "boot.repeats=1")
    with endpoints(plan) as process:
        say(process, str(time.monotonic_ns()))
        stages, place = "preflight,golden-image,boot,clean", ("--store", str(tmp_path), "--run-id", "ssh")
        asked = (*place, *(word for text in sets for word in ("--set", text)), "--no-prefect")
        code = exit_code_of(("run", "--profile", "smoke", "--stages", stages, "--cluster", CONTEXT, *asked))
    assert code == 3, capsys.readouterr().err
    boots = pl.concat(pl.read_parquet(f) for f in (tmp_path / "vm_boots").rglob("*.parquet")).sort("vm")
    assert boots["state"].to_list() == ["ok", "ok", "timeout", "ok"]
    assert boots["detail"].to_list()[2] == f"127.{OWN}.0.12: TCP is open, no banner came"
    assert boots["tcp_open_s"].null_count() == 0
    assert boots["ssh_ready_s"].null_count() == boots["ssh_banner_s"].null_count() == 1
