"""What a suspended run's form asks, and what its answer allows; no server needed."""

from typing import Any

import pytest
from pydantic import ValidationError

from flows.suspension import Decision, answered, decider, form_of, text_of
from infra.errors import InvalidRun
from tasks.tuning import Proposal

PODS = Proposal("kubelet-max-pods", "KubeletConfig virtscale", "250", "400", "reboots every worker")
CLONES = Proposal("clone-strategy", "StorageProfile ceph", "snapshot", "csi-clone", "")


def answer(**fields: Any) -> Decision:
    return form_of([PODS, CLONES]).model_validate({"decision": "approve", **fields})


def test_the_form_shows_what_would_change_and_what_that_does() -> None:
    text = text_of([PODS, CLONES], "my-lab", 24)
    assert "| kubelet-max-pods | 250 | 400 | KubeletConfig virtscale | reboots every worker |" in text
    assert "2 settings differ; 1 of them disturb the cluster" in text
    assert "within 24 h" in text


def test_only_knobs_that_were_asked_about_can_be_left() -> None:
    assert answer(decision="leave these knobs", leave=["clone-strategy"]).leave == ("clone-strategy",)
    with pytest.raises(ValidationError):
        answer(decision="leave these knobs", leave=["clone-strategie"])


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, {"kubelet-max-pods", "clone-strategy"}),
        ({"leave": ["kubelet-max-pods"]}, {"kubelet-max-pods", "clone-strategy"}),
        ({"decision": "leave these knobs", "leave": ["kubelet-max-pods"]}, {"clone-strategy"}),
        ({"decision": "reject"}, None),
    ],
)
def test_an_answer_allows_what_it_says(fields: dict[str, Any], allowed: set[str] | None) -> None:
    approval = answered(answer(by="Ada", **fields), [PODS, CLONES])([PODS, CLONES])
    assert approval.knobs == allowed
    assert (approval.record["by"], approval.record["decision"]) == ("Ada", fields.get("decision", "approve"))


def test_what_stands_otherwise_than_it_was_shown_is_left_as_it_is() -> None:
    moved = PODS._replace(before="300")
    assert answered(answer(), [PODS, CLONES])([moved, CLONES]).knobs == frozenset({"clone-strategy"})
    assert answered(answer(), [PODS, CLONES])([]).record["by"] == "unknown"


def test_without_a_deployment_nobody_can_be_asked() -> None:
    ask: Any = decider(approved=False, hours=1)(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidRun, match=r"kubelet-max-pods = 400 .* allow it with --yes"):
        ask([PODS])
    granted: Any = decider(approved=True, hours=1)(None)  # type: ignore[arg-type]
    assert granted([PODS]).knobs == {"kubelet-max-pods"}
