"""`virtscale compare` on stored runs: results, refusals, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.results.manifest import write_manifest
from infra.results.open import open_store
from tasks.analysis.comparability import KEYS
from tests.unit.flows.conftest import Call
from tests.unit.flows.stored import COMPARABILITY, manifest, store_run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "store"
    store_run(folder, "old")
    store_run(folder, "same")
    store_run(folder, "slow", factor=1.2)
    late = {"verdict": "invalid", "reasons": ["boot 80: vm_not_ok: 3 of 80 timeout"]}
    store_run(folder, "late", factor=1.2, late=3, **late)
    return folder


def only_manifest(store: Path, run_id: str, **changes: Any) -> None:
    write_manifest(open_store(str(store)), run_id, manifest(run_id, **changes))


def test_equal_runs_are_no_regression(virtscale: Call, store: Path) -> None:
    answer = virtscale("compare", "old", "same", "--store", str(store))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[-2].startswith("result  No regression of same against old")


def test_a_slower_run_is_exit_code_4_and_names_what_is_slower(virtscale: Call, store: Path) -> None:
    answer = virtscale("compare", "old", "slow", "--store", str(store))
    assert answer.code == 4
    assert "slow is worse than old: deploy end to end, deploy p50, deploy p99" in answer.out
    assert "One repeat: the sizes are the units" in answer.out


def test_the_json_is_one_object_with_every_number(virtscale: Call, store: Path) -> None:
    found = json.loads(virtscale("compare", "old", "slow", "--store", str(store), "--json").out)
    assert (found["baseline"], found["run"], found["exit_code"], found["confidence"]) == (
        "old",
        "slow",
        4,
        0.95,
    )
    (deploy,) = [each for each in found["metrics"] if each["metric"] == "deploy end to end"]
    assert (deploy["decision"], deploy["by"], deploy["units"]) == ("regression", "sizes", 4)
    assert 0 < deploy["low"] < deploy["change"] < deploy["high"]
    assert [size["size"] for size in deploy["sizes"]] == [10, 20, 40, 80]
    assert Path(found["page"]).is_file()


def test_the_page_needs_no_network_and_says_the_world(virtscale: Call, store: Path) -> None:
    virtscale("compare", "old", "slow", "--store", str(store))
    page = (store / "reports/slow/compared-with-old.html").read_text()
    assert "<strong>VIRTUAL</strong>" in page
    assert "deploy end to end" in page
    assert 'src="http' not in page
    assert 'href="http' not in page


def test_a_run_that_is_not_valid_is_exit_code_3_whatever_its_numbers_say(
    virtscale: Call, store: Path
) -> None:
    answer = virtscale("compare", "old", "late", "--store", str(store))
    assert answer.code == 3
    assert "Run late is invalid: boot 80: vm_not_ok: 3 of 80 timeout." in answer.out


def test_what_never_finished_is_beyond_its_limit_and_no_number(virtscale: Call, store: Path) -> None:
    found = json.loads(virtscale("compare", "old", "late", "--store", str(store), "--json").out)
    metrics = {each["metric"]: each for each in found["metrics"]}
    largest = metrics["boot end to end"]["sizes"][-1]
    assert (largest["run"], largest["change"], largest["run_limit"]) == (None, None, 1800.0)
    assert largest["bound"] > 10
    assert metrics["boot end to end"]["decision"] == metrics["boot p99"]["decision"] == "regression"
    text = virtscale("compare", "old", "late", "--store", str(store)).out
    assert "> 30 min" in text
    assert "without 80 VMs" in text


CHANGED: dict[str, Any] = {
    "world": "testbed",
    "golden_sources": 4,
    "background_pods": 15000,
    "faults": "5d0c",
}


@pytest.mark.parametrize("key", KEYS)
def test_each_single_differing_key_is_refused_by_name(virtscale: Call, store: Path, key: str) -> None:
    only_manifest(store, "other", comparability={**COMPARABILITY, key: CHANGED.get(key, "another")})
    answer = virtscale("compare", "old", "other", "--store", str(store))
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"run other cannot be compared with old: {key}" in answer.err
    assert answer.err.rstrip().endswith(f"or --allow {key}")


def test_what_is_allowed_to_differ_is_compared_and_told(virtscale: Call, store: Path) -> None:
    store_run(store, "upgraded", comparability={**COMPARABILITY, "versions": {"kubevirt": "v1.7.0"}})
    refused = virtscale("compare", "old", "upgraded", "--store", str(store), "--allow", "caller")
    allowed = virtscale("compare", "old", "upgraded", "--store", str(store), "--allow", "caller,versions")
    assert (refused.code, allowed.code) == (2, 0)
    assert "allowed although versions." in allowed.out


def test_a_baseline_may_be_in_another_store(virtscale: Call, store: Path, tmp_path: Path) -> None:
    store_run(tmp_path / "elsewhere", "slow")
    answer = virtscale("compare", "slow", "slow", "--store", str(store), "--baseline-store", "elsewhere")
    assert answer.code == 4


def test_thresholds_are_those_of_the_baseline(virtscale: Call, store: Path) -> None:
    lenient = manifest("lenient")["profile"]
    lenient["compare"] |= {"end_to_end_share": 0.5, "percentile_share": 0.5}
    store_run(store, "lenient", profile=lenient)
    answer = virtscale("compare", "lenient", "slow", "--store", str(store))
    assert answer.code == 0
    assert "below threshold" in answer.out


WRONG = {
    "with itself": (("old", "old"), "run old: compared with itself"),
    "an unknown baseline": (("none", "old"), "run none: the store has no such run"),
    "an unknown run": (("old", "none"), "run none: the store has no such run"),
    "no run id": (("old", "No_Id"), "run id 'No_Id'"),
    "an unfinished run": (
        ("old", "open"),
        "run open is not finished; go on with virtscale run --run-id open",
    ),
    "an unfinished baseline": (("open", "old"), "run open is not finished"),
    "nothing measured": (("old", "empty"), "run empty measured nothing"),
    "nothing in common": (
        ("old", "bare"),
        "run bare and old have no batch of the same stage, size and repeat",
    ),
    "an unknown key": (("old", "same", "--allow", "storage"), "storage is no key; there are world, versions"),
    "one run": (("old",), "Missing argument 'RUN'"),
    "a store that is not there": (("old", "same", "--store", "nowhere"), "nowhere"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_compared_is_one_line(
    virtscale: Call, store: Path, arguments: tuple[str, ...], said: str
) -> None:
    only_manifest(store, "open", finished_at=None, verdict=None)
    only_manifest(store, "empty", verdict=None)
    only_manifest(store, "bare")
    where = () if "--store" in arguments else ("--store", str(store))
    answer = virtscale("compare", *arguments, *where)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err
