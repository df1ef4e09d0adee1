"""`make prove-compare` in small: real runs of the virtual cluster, an equal pair and one that is not."""

from pathlib import Path

import click
import pytest

from infra.results.open import open_store
from tasks.analysis.comparability import KEYS
from tasks.comparing import compare_runs
from tasks.surroundings import DEFAULT, stated_rate
from tests.benchmarks.compare_runs import Plan, measured
from tests.benchmarks.prove_compare import check_code

DEPLOYS = ("golden-image", "deploy")


def test_another_seed_is_no_regression_and_a_slower_restore_is_one(tmp_path: Path) -> None:
    plans = [Plan(1, 3, DEPLOYS, sizes="20,40"), Plan(2, 3, DEPLOYS, sizes="20,40")]
    plans.append(Plan(3, 3, DEPLOYS, slower=1.15, sizes="20,40"))
    usual, same, slow = (
        (open_store(str(tmp_path / plan.run_id)), measured(tmp_path, plan)) for plan in plans
    )
    found = compare_runs(usual, same)
    assert found.regressions == []
    assert set(found.run["comparability"]) == set(KEYS)
    assert set(found.run["comparability"]["vm"]) == {"cores", "memory_gib", "disk_gib", "network"}
    assert [key for key, value in found.run["comparability"].items() if value is None] == ["faults"]
    assert "deploy end to end" in compare_runs(usual, slow).regressions


def test_a_proof_goes_on_with_runs_of_the_same_code_only(tmp_path: Path) -> None:
    check_code(tmp_path)
    check_code(tmp_path)
    (tmp_path / "code.sha256").write_text("that of an older version")
    with pytest.raises(click.ClickException, match="holds runs of other code"):
        check_code(tmp_path)


def test_a_rate_is_in_force_where_kubevirt_states_it() -> None:
    limiter = {"rateLimiter": {"tokenBucketRateLimiter": {"qps": 100, "burst": 200}}}
    stated = {"controllerConfiguration": {"restClient": limiter}}
    assert stated_rate(stated, "controller") == "100/200"
    assert stated_rate(stated, "handler") == DEFAULT
