"""What a webhook may start, and what a wrong rules file says."""

from pathlib import Path
from typing import Any

import pytest

from flows.forms import FORMS
from flows.webhook.rules import FILE, Hook, Unacceptable, allowed, complete, load_rules
from infra.errors import ProfileError

HOOK = Hook(
    deployment="study/x", parameters={"profile": ["small"], "seed": True, "keep": False}, fixed={"keep": True}
)


def test_the_rules_that_are_shipped_name_forms_and_fields_that_exist() -> None:
    for hook in load_rules(FILE).hooks.values():
        fields = FORMS[hook.deployment.partition("/")[0]].model_fields
        assert set(hook.parameters) <= set(fields)
        assert not {"cluster", "store", "faults", "changes"} & set(hook.parameters)


def test_what_is_fixed_wins() -> None:
    assert allowed(HOOK, {"seed": 3}) == {"seed": 3, "keep": True}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"store": "x"}, r"parameters.store: not one of this hook's parameters \(keep, profile, seed\)"),
        ({"keep": False}, "parameters.keep: not one of"),
        ({"profile": "study"}, "parameters.profile: must be one of small"),
        ({"profile": ["small"]}, "parameters.profile: must be one of small"),
    ],
)
def test_what_the_hook_does_not_take_is_said(given: dict[str, Any], says: str) -> None:
    with pytest.raises(Unacceptable, match=says):
        allowed(HOOK, given)


@pytest.mark.parametrize(
    ("flow", "request_", "says"),
    [
        ("study", {"seed": "1"}, r"parameters\.seed: Input should be a valid integer"),
        ("deploy", {"batches": [1, "2"]}, r"parameters\.batches\.1: Input should be a valid integer"),
        ("deploy", {"batches": [2, 1]}, "each larger than the one before"),
        ("deploy", {"profile": "nope"}, "nope is not a profile"),
        ("clean", {}, r"parameters\.run_id: Field required"),
        ("study", {"changes": ["boot.nope=1"]}, "boot.nope"),
        ("study", {"seed": {"__prefect_kind": "jinja", "template": "1"}}, r"parameters\.seed"),
    ],
)
def test_what_the_form_refuses_is_said_with_its_path(flow: str, request_: dict[str, Any], says: str) -> None:
    with pytest.raises(Unacceptable, match=says):
        complete(flow, request_)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[hooks.x]\n", "hooks.x.deployment: Field required"),
        ('[hooks.x]\ndeployment = "y"\n', "hooks.x.deployment: String should match pattern"),
        ("[hooks\n", "line 1"),
        ('[hooks.x]\ndeployment = "a/b"\nsecret = "s"\n', "hooks.x.secret: Extra inputs"),
    ],
)
def test_a_wrong_rules_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=says) as refused:
        load_rules(path)
    assert "\n" not in str(refused.value)


def test_no_rules_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read: No such file"):
        load_rules(tmp_path / "none.toml")
