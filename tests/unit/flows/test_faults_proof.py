"""What `make prove-faults` calls wrong."""

from typing import Any

from tests.benchmarks.prove_faults import CALM, STRUCK, Found, page, problems


def batch(**changes: Any) -> dict[str, Any]:
    return {
        "stage": "deploy",
        "batch": 100,
        "n": 100,
        "not_ok": 2,
        "named": ["clone_failed", "vm_not_ok"],
        "injected": ["clone_failed", "vm_not_ok"],
        "amounts": {"clone_failed": [2, 0], "vm_not_ok": [2, 0], "throttled": [0.01, 0.05]},
        "faults": [],
        "checked": 300,
        "wrong": [],
        "bounds": {"deployed": [98, 0.2, 3.0]},
        **changes,
    }


def calm(**changes: Any) -> Found:
    return Found(CALM, 0, [batch(not_ok=0, named=[], injected=[], amounts={}, **changes)])


def test_a_run_that_holds_has_no_problem_and_shows_what_stayed_below_its_threshold() -> None:
    struck = Found(STRUCK, 3, [batch()])
    assert [*problems(struck), *problems(calm())] == []
    text = page([calm(), struck], 7, [], ())
    assert "Everything holds." in text
    assert (
        "| deploy 100 | 100 | 2 | `clone_failed` 2, `vm_not_ok` 2 | `throttled` 0.01 of 0.05 | yes |" in text
    )
    assert "| deploy: `deployed_s` | 98 | 0.200 (100) | 3.000 | 0.200 | 3.000 |" in text


def test_another_exit_code_a_wrong_reason_and_a_record_beyond_its_bound_are_told() -> None:
    assert [*problems(Found(STRUCK, 0, []))] == ["struck: exit code 0, not 3"]
    (told,) = problems(Found(STRUCK, 3, [batch(named=["vm_not_ok"])]))
    assert told.startswith("struck: deploy 100: named ['vm_not_ok'], was ['clone_failed', 'vm_not_ok']")
    assert [*problems(Found(STRUCK, 3, [batch(wrong=["vm a"], faults=["99 records for 100 VMs"])]))] == [
        "struck: deploy 100: vm a",
        "struck: deploy 100: 99 records for 100 VMs",
    ]


def test_a_wide_bound_is_a_problem_of_a_calm_run_alone() -> None:
    wide = {"deployed": [100, 1.5, 60.0]}
    assert [*problems(calm(bounds=wide))] == ["calm: deploy 100: p99 of the bound of deployed is 1.5 s"]
    assert [*problems(Found(STRUCK, 3, [batch(bounds=wide)]))] == []
