"""`virtscale run --workers dask` beside a run of one process, on a served cluster that logs the truth."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from infra import prefect_server
from infra.results.open import open_store
from infra.results.read import scan
from infra.served.access import CONTEXT
from tasks.records import TABLES, VM_TABLES
from tests.real.controlling import unhurried
from tests.served.truth_log import Truth

pytestmark = [pytest.mark.prefect, pytest.mark.slow, pytest.mark.timeout(300)]

N = 40
SHARDS = 4
SETS = ("--set", f"deploy.batches={N}", "--set", f"boot.batches={N}", *unhurried())
STAGES = "golden-image,deploy,boot"


class Lab(NamedTuple):
    """A served cluster, a store, and what a command needs to find them."""

    folder: Path
    environment: dict[str, str]

    def run(self, run_id: str, *options: str) -> None:
        place = ("--cluster", CONTEXT, "--store", str(self.folder / "store"), "--run-id", run_id)
        # the cluster goes when the test ends: nothing is cleaned, so each run has namespaces of its own
        own = ("--keep", "--set", f"namespace={run_id}", "--set", f"golden_namespace={run_id}-golden")
        asked = ("run", "--profile", "smoke", "--stages", STAGES, *place, *own, *SETS, *options)
        done = subprocess.run(
            [sys.executable, "-m", "flows", *asked],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def rows(self, run_id: str, table: str) -> pl.DataFrame:
        return scan(open_store(str(self.folder / "store")), run_id, table, TABLES[table])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("dask")
    kubeconfig, state = folder / "kubeconfig", folder / "state"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"VIRTSCALE_STATE": str(state), "KUBECONFIG": str(kubeconfig)}
    options = ("--kubeconfig", str(kubeconfig), "--nodes", "5")
    command = [sys.executable, "-m", "tests.served.truth_log", str(folder / "truth"), *options]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline().startswith("export KUBECONFIG=")
            # a server takes as long to start as the first run, which does without
            start = [sys.executable, "-c", "from infra.prefect_server import ensure_server; ensure_server()"]
            with subprocess.Popen(start, env=environment):
                yield Lab(folder, environment)
        finally:
            server.terminate()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("VIRTSCALE_STATE", str(state))
                prefect_server.stop_server()


def test_four_shards_give_the_tables_of_one_process_and_both_hold_the_truth(lab: Lab) -> None:
    lab.run("one", "--no-prefect")
    lab.run("four", "--workers", "dask", "--shards", str(SHARDS))
    truth = Truth(lab.folder / "truth")
    for stage, table in VM_TABLES.items():
        one, four = (lab.rows(run_id, table).sort("vm") for run_id in ("one", "four"))
        assert one.schema == four.schema
        assert four["vm"].to_list() == [vm.replace("one", "four", 1) for vm in one["vm"]]
        assert four["state"].to_list() == one["state"].to_list() == ["ok"] * N
        # what was observed of one is observed of the other, with a bound
        assert one.null_count().row(0) == four.null_count().row(0)
        for run_id, frame in (("one", one), ("four", four)):
            assert truth.wrong(frame.to_dicts(), _released_s(lab, run_id, stage)) == []
    _check_shards(lab.rows("four", "shards"))
    assert lab.rows("one", "shards").is_empty()


def _released_s(lab: Lab, run_id: str, stage: str) -> float:
    batches: Any = lab.rows(run_id, "batches").filter(pl.col("stage") == stage)
    (at,) = batches["released_at"]
    return float(at.timestamp())


def _check_shards(shards: pl.DataFrame) -> None:
    """Processes of this machine have one clock: what was measured of it must say so."""
    assert shards.height == SHARDS * len(VM_TABLES)
    assert set(shards["state"]) == {"ok"}
    assert shards["vms"].to_list() == [N // SHARDS] * shards.height
    assert shards["pid"].n_unique() == SHARDS
    assert (shards["clock_offset_ns"].abs() <= shards["clock_offset_error_ns"]).all()
    assert shards["released_late_ns"].min() >= 0  # type: ignore[operator]
