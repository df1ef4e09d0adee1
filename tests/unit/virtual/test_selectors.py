"""Selectors in Kubernetes' own syntax."""

import pytest

from infra.cluster.virtual.selectors import field_predicate, label_predicate, predicate
from infra.errors import Invalid


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("app=web", {"app": "web"}, True),
        ("app==web", {"app": "web"}, True),
        ("app=web", {}, False),
        ("app!=web", {}, True),
        ("app!=web", {"app": "web"}, False),
        ("app", {"app": ""}, True),
        ("!app", {"app": ""}, False),
        ("!app", {}, True),
        ("app in (web, db)", {"app": "db"}, True),
        ("app in (web,db)", {"app": "x"}, False),
        ("app notin (web,db)", {}, True),
        ("virtscale.io/run=r-1,virtscale.io/stage=boot", {"virtscale.io/run": "r-1"}, False),
        (
            "virtscale.io/run=r-1, virtscale.io/stage=boot",
            {"virtscale.io/run": "r-1", "virtscale.io/stage": "boot"},
            True,
        ),
        ("app=", {"app": ""}, True),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], selected: bool) -> None:
    test = label_predicate(selector)
    assert test is not None
    assert test({"metadata": {"labels": labels}}) is selected


def test_an_object_without_labels_has_none() -> None:
    test = label_predicate("!app")
    assert test is not None
    assert test({"metadata": {}}) is True


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("metadata.name=a", True),
        ("metadata.name==a", True),
        ("metadata.name!=a", False),
        ("spec.nodeName=n,status.phase!=Failed", True),
        ("spec.absent=", True),
    ],
)
def test_field_selectors(selector: str, selected: bool) -> None:
    test = field_predicate(selector)
    assert test is not None
    obj = {"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    assert test(obj) is selected


def test_no_selector_selects_everything_without_a_test() -> None:
    assert predicate("", "") is None


@pytest.mark.parametrize("wrong", ["app in web", "=web", "a b", "app=web;"])
def test_a_selector_that_cannot_be_read_is_invalid(wrong: str) -> None:
    with pytest.raises(Invalid, match="unable to parse label selector"):
        label_predicate(wrong)


def test_a_field_selector_without_a_value_is_invalid() -> None:
    with pytest.raises(Invalid, match="invalid field selector"):
        field_predicate("metadata.name")
