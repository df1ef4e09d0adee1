from typing import Any

import pytest

from tasks.analysis.comparability import KEYS, differences, refusal, told, unknown_keys

EQUAL: dict[str, Any] = {key: {"a": 1, "b": [1, 2]} for key in KEYS}


def test_equal_manifests_differ_in_nothing() -> None:
    assert differences(EQUAL, dict(EQUAL)) == []


@pytest.mark.parametrize("key", KEYS)
def test_each_key_that_differs_is_named_with_both_values(key: str) -> None:
    (found,) = differences(EQUAL, {**EQUAL, key: {"a": 1, "b": [1, 3]}})
    assert (found.key, found.path, found.baseline, found.run) == (key, f"{key}.b", "[1, 2]", "[1, 3]")
    assert f"{key}.b differs ([1, 2], then [1, 3])" in refusal(("old", "new"), [found])
    assert f"--allow {key}" in refusal(("old", "new"), [found])


@pytest.mark.parametrize("key", KEYS)
def test_what_only_one_run_knows_differs(key: str) -> None:
    without = {name: value for name, value in EQUAL.items() if name != key}
    assert {each.key for each in differences(EQUAL, without)} == {key}
    assert {each.key for each in differences({**EQUAL, key: None}, EQUAL)} == {key}


def test_every_value_that_differs_is_found_and_the_first_three_of_a_key_are_told() -> None:
    old, new = (dict.fromkeys("abcde", i) for i in (1, 2))
    found = differences({**EQUAL, "tuning": old}, {**EQUAL, "tuning": new})
    assert [each.path for each in found] == [f"tuning.{name}" for name in "abcde"]
    assert told(found) == [
        *(f"tuning.{name} differs (1, then 2)" for name in "abc"),
        "tuning differs in 2 more",
    ]
    assert refusal(("old", "new"), found).endswith("--allow tuning")


def test_nothing_in_a_profile_is_told_as_none() -> None:
    (found,) = differences({**EQUAL, "vm": {"network": ""}}, {**EQUAL, "vm": {"network": "tenant"}})
    assert told([found]) == ["vm.network differs (none, then tenant)"]


def test_several_keys_are_all_named_in_one_line() -> None:
    found = differences(EQUAL, {**EQUAL, "world": "testbed", "caller": "x" * 100})
    line = refusal(("old", "new"), found)
    assert "run new cannot be compared with old: world" in line
    assert line.endswith("--allow world,caller")
    assert "\n" not in line


def test_what_neither_run_knows_is_told_but_no_faults_are_no_secret() -> None:
    assert unknown_keys({**EQUAL, "caller": None}, {**EQUAL, "caller": None}) == ["caller"]
    assert unknown_keys({**EQUAL, "faults": None}, {**EQUAL, "faults": None}) == []
