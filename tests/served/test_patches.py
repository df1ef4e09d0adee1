"""Patches, paths and tables: the pure parts of the served API."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.cluster.kinds import KINDS, NAMESPACE, POD, VM
from infra.cluster.port import Ref
from infra.cluster.real.requests import collection, item
from infra.cluster.virtual.store import merge
from infra.errors import Invalid
from infra.served.patches import difference, json_patch, strategic
from infra.served.paths import target
from infra.served.tables import lasting, table

scalars = st.booleans() | st.integers() | st.text(max_size=3)
values = st.recursive(
    scalars | st.lists(scalars, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(objects, objects)
def test_a_difference_merged_is_the_new_object(old: dict[str, Any], new: dict[str, Any]) -> None:
    change = difference(old, new)
    assert merge(old, change) == new
    assert bool(change) or old == new


CONTAINERS = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}


def test_a_strategic_patch_merges_lists_by_their_key() -> None:
    patch = {"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "1"}]}
    assert strategic(CONTAINERS, patch)["containers"] == [
        {"name": "a", "image": "1"},
        {"name": "b", "image": "2"},
        {"name": "c", "image": "1"},
    ]


def test_a_strategic_patch_deletes_and_replaces_where_it_says_so() -> None:
    gone = strategic(CONTAINERS, {"containers": [{"name": "a", "$patch": "delete"}]})
    assert [each["name"] for each in gone["containers"]] == ["b"]
    only = strategic(CONTAINERS, {"containers": [{"$patch": "replace"}, {"name": "z"}]})
    assert only["containers"] == [{"name": "z"}]
    assert strategic({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}
    assert strategic({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}) == {"a": {"c": 2}}


def test_finalizers_are_a_set() -> None:
    old = {"finalizers": ["a"]}
    assert strategic(old, {"finalizers": ["b", "a"]}) == {"finalizers": ["a", "b"]}
    taken = strategic(old, {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": []})
    assert taken == {"finalizers": []}


def test_a_json_patch_adds_replaces_moves_and_removes() -> None:
    old = {"a": {"b": [1, 2]}, "x/y": 1}
    done = json_patch(
        old,
        [
            {"op": "test", "path": "/a/b/0", "value": 1},
            {"op": "add", "path": "/a/b/-", "value": 3},
            {"op": "add", "path": "/a/b/0", "value": 0},
            {"op": "replace", "path": "/x~1y", "value": 2},
            {"op": "copy", "from": "/a/b", "path": "/c"},
            {"op": "move", "from": "/x~1y", "path": "/z"},
            {"op": "remove", "path": "/a/b/1"},
        ],
    )
    assert done == {"a": {"b": [0, 2, 3]}, "c": [0, 1, 2, 3], "z": 2}
    assert old == {"a": {"b": [1, 2]}, "x/y": 1}


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "replace", "path": "/nowhere", "value": 2}],
        [{"op": "remove", "path": "/a/b"}],
        [{"op": "jump", "path": "/a"}],
        ["text"],
        [{"path": "/a"}],
    ],
)
def test_a_json_patch_that_does_not_fit_is_refused(operations: Any) -> None:
    with pytest.raises(Invalid, match="the JSON patch cannot be applied"):
        json_patch({"a": 1}, operations)


def test_every_path_that_our_adapter_asks_for_is_known() -> None:
    for kind in KINDS:
        namespace = "ns" if kind.namespaced else ""
        found = target(collection(kind, namespace))
        assert found is not None
        assert (found.kind, found.namespace, found.name) == (kind, namespace, "")
        one = target(item(Ref(kind, namespace, "one")) + "/status")
        assert one is not None
        assert (one.ref, one.subresource) == (Ref(kind, namespace, "one"), "status")
    assert target("/api/v1/namespaces/ns/finalize") == (NAMESPACE, "", "ns", "finalize")
    assert target("/api/v1/pods") == (POD, "", "", "")


@pytest.mark.parametrize(
    "path",
    ["/", "/api", "/api/v1", "/api/v2/pods", "/apis/kubevirt.io/v1/pods", "/api/v1/pods/a", "/x/v1/pods"],
)
def test_no_other_path_is(path: str) -> None:
    assert target(path) is None


def test_ages_are_written_as_kubectl_writes_them() -> None:
    shown = [lasting(seconds) for seconds in (5, 119, 180, 185, 3600, 4 * 3600, 3 * 86400)]
    assert shown == ["5s", "119s", "3m", "3m5s", "60m", "4h", "3d"]


def test_a_table_has_a_cell_for_each_column() -> None:
    vm = {"metadata": {"name": "a"}, "status": {"printableStatus": "Running"}}
    shown = table(VM, [vm], "7")
    assert [each["name"] for each in shown["columnDefinitions"]] == ["Name", "Age", "Status", "Ready"]
    assert shown["rows"][0]["cells"] == ["a", "<unknown>", "Running", "False"]
    assert shown["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    for kind in KINDS:
        row = table(kind, [{"metadata": {"name": "a"}}], "7", "None")
        assert len(row["rows"][0]["cells"]) == len(row["columnDefinitions"])
