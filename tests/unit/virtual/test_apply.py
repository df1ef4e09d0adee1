"""Server-side apply: who owns a field, what conflicts, what goes when it is applied no longer."""

import pytest

from infra.cluster.kinds import CONFIG_MAP
from infra.cluster.port import Object
from infra.cluster.virtual.apply import Request, apply
from infra.errors import Conflict
from tests.unit.virtual.conftest import STAMP, Watched, manifest, ref


def applied(
    watched: Watched, manager: str, *, force: bool = False, dry_run: bool = False, **data: str
) -> Object:
    return apply(watched.store, manifest(CONFIG_MAP, data=data), Request(manager, STAMP, force, dry_run))


def data(watched: Watched) -> dict[str, str]:
    found: dict[str, str] = watched.store.get(ref(CONFIG_MAP)).get("data", {})
    return found


def test_what_is_absent_is_created_and_again_nothing_happens(watched: Watched) -> None:
    applied(watched, "one", a="1")
    applied(watched, "one", a="1")
    assert watched.types == ["ADDED"]
    assert data(watched) == {"a": "1"}


def test_another_managers_field_is_a_conflict_that_names_both(watched: Watched) -> None:
    applied(watched, "one", a="1", b="1")
    with pytest.raises(Conflict, match=r'1 conflict\(s\): conflicts with "one": \.data\.a'):
        applied(watched, "two", a="2", c="2")
    assert data(watched) == {"a": "1", "b": "1"}, "all or nothing"


def test_the_same_value_is_no_conflict_and_then_both_own_it(watched: Watched) -> None:
    applied(watched, "one", a="1")
    applied(watched, "two", a="1")
    applied(watched, "one", b="1")
    assert data(watched) == {"a": "1", "b": "1"}, "the other still owns it"
    applied(watched, "two", c="2")
    assert data(watched) == {"b": "1", "c": "2"}


def test_force_takes_the_field_over(watched: Watched) -> None:
    applied(watched, "one", a="1")
    applied(watched, "two", force=True, a="2")
    assert data(watched) == {"a": "2"}
    with pytest.raises(Conflict, match='conflicts with "two"'):
        applied(watched, "one", a="1")


def test_a_field_applied_no_longer_is_removed_and_a_foreign_one_stays(watched: Watched) -> None:
    applied(watched, "one", a="1", b="1")
    watched.store.patch(ref(CONFIG_MAP), {"data": {"foreign": "x"}})
    applied(watched, "one", b="1")
    assert data(watched) == {"b": "1", "foreign": "x"}


def test_a_list_is_replaced_as_a_whole(watched: Watched) -> None:
    for members in (["a", "b"], ["c"]):
        obj = manifest(CONFIG_MAP, data={"members": members})
        apply(watched.store, obj, Request("one", STAMP, force=False, dry_run=False))
    assert watched.store.get(ref(CONFIG_MAP))["data"]["members"] == ["c"]


def test_a_dry_run_answers_and_leaves_everything(watched: Watched) -> None:
    assert applied(watched, "one", dry_run=True, a="1")["data"] == {"a": "1"}
    assert watched.types == []
    applied(watched, "one", a="1")
    assert applied(watched, "one", dry_run=True, a="2")["data"] == {"a": "2"}
    assert data(watched) == {"a": "1"}


def test_a_map_that_was_applied_empty_grows(watched: Watched) -> None:
    applied(watched, "one")
    applied(watched, "one", a="1")
    assert data(watched) == {"a": "1"}
