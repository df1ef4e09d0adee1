"""The report stage needs what is stored, and nothing else."""

from pathlib import Path

import pytest

from flows.steps import Step
from flows.taking import step_here
from infra.errors import StoreError
from infra.results.open import open_store
from infra.results.read import scan
from tasks.profile import Profile
from tasks.records import TABLES
from tasks.run import RunRequest
from tests.unit.flows.stored import store_run


def test_a_report_is_written_although_its_cluster_is_gone(tmp_path: Path) -> None:
    store_run(tmp_path, "a", world_started_at="2026-01-01T00:00:00+00:00")
    gone = RunRequest(
        run_id="a", profile=Profile(name="small"), cluster="no-such-context", store=str(tmp_path)
    )
    summary = step_here(gone, Step("report"))
    assert summary["verdict"] == "valid"
    assert "Deploying 80 VMs takes" in Path(summary["report"]).read_text()
    (row,) = scan(open_store(str(tmp_path)), "a", "runs", TABLES["runs"]).to_dicts()
    assert (row["world"], row["verdict"], row["finished_at"]) == ("virtual", "valid", None)


def test_a_report_of_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the store has no such run"):
        step_here(RunRequest(run_id="a", store=str(tmp_path)), Step("report"))
