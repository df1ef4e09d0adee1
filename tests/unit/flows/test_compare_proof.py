"""`make prove-compare` in small: real runs of the virtual cluster, an equal pair and one that is not."""

from pathlib import Path

from infra.results.open import open_store
from tasks.comparing import compare_runs
from tests.benchmarks.compare_runs import Plan, measured

DEPLOYS = ("golden-image", "deploy")


def test_another_seed_is_no_regression_and_a_slower_restore_is_one(tmp_path: Path) -> None:
    plans = [Plan(1, 3, DEPLOYS, sizes="20,40"), Plan(2, 3, DEPLOYS, sizes="20,40")]
    plans.append(Plan(3, 3, DEPLOYS, slower=1.15, sizes="20,40"))
    usual, same, slow = (
        (open_store(str(tmp_path / plan.run_id)), measured(tmp_path, plan)) for plan in plans
    )
    assert compare_runs(usual, same).regressions == []
    assert "deploy end to end" in compare_runs(usual, slow).regressions
