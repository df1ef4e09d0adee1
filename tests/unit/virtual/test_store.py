"""The object store: what an API server does to objects, and that nothing committed is ever changed."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cluster.kinds import CONFIG_MAP, DATA_VOLUME, NAMESPACE, NODE, POD, PVC, VM, VMI
from infra.cluster.port import Ref
from infra.cluster.virtual.store import Store, merge, validated
from infra.errors import AlreadyExists, Conflict, Invalid, NotFound
from tests.unit.virtual.conftest import STAMP, Watched, frozen, manifest, ref

scalars = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["", "a", "b"]))
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=6,
)
maps = st.dictionaries(st.sampled_from("abcd"), trees, max_size=4)


def plainly_merged(target: Any, patch: Any) -> Any:
    """RFC 7386 word by word, everything copied."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = plainly_merged(result.get(name), value)
    return result


@given(target=trees, patch=maps)
@settings(max_examples=150)
def test_a_merge_is_rfc_7386_and_changes_neither_side(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    assert merge(frozen(target), frozen(patch)) == plainly_merged(target, patch)
    assert (target, patch) == before


@given(target=maps, patch=maps)
@settings(max_examples=50)
def test_a_merge_shares_what_the_patch_does_not_name(target: dict[str, Any], patch: dict[str, Any]) -> None:
    merged = merge(target, patch)
    for name in target.keys() - patch.keys():
        assert merged[name] is target[name]


@given(target=maps)
@settings(max_examples=50)
def test_a_merge_with_itself_is_the_object_itself(target: dict[str, Any]) -> None:
    without_nulls = plainly_merged({}, target)
    assert merge(without_nulls, copy.deepcopy(without_nulls)) is without_nulls


def test_true_is_not_one_in_a_merge() -> None:
    assert merge({"a": 1}, {"a": True})["a"] is True


def test_every_write_has_a_later_resource_version(watched: Watched) -> None:
    made = watched.make(VM, spec={"runStrategy": "Halted"})
    changed = watched.store.patch(ref(VM), {"spec": {"runStrategy": "Always"}})
    watched.store.delete(ref(VM), STAMP)
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj, _ in watched.events]
    assert watched.types == ["ADDED", "MODIFIED", "DELETED"]
    assert versions == sorted(set(versions))
    assert made["metadata"]["uid"] == changed["metadata"]["uid"]


def test_a_patch_of_nothing_makes_no_event(watched: Watched) -> None:
    made = watched.make(VM, meta={"labels": {"a": "b"}}, spec={"runStrategy": "Halted"})
    change = {"metadata": {"labels": {"a": "b", "absent": None}}, "spec": {"runStrategy": "Halted"}}
    assert watched.store.patch(ref(VM), change) is made
    assert watched.types == ["ADDED"]


def test_the_status_of_a_kind_with_the_subresource_is_written_there_only(watched: Watched) -> None:
    made = watched.make(VM, spec={}, status={"printableStatus": "Running"})
    assert "status" not in made, "a create drops it"
    watched.store.patch(ref(VM), {"status": {"created": True}})
    assert "status" not in watched.store.get(ref(VM)), "a plain patch drops it"
    written = watched.store.patch(
        ref(VM), {"status": {"created": True}, "spec": {"runStrategy": "Always"}}, "status"
    )
    assert (written["status"], written["spec"]) == ({"created": True}, {})
    assert written["metadata"]["generation"] == 1


def test_a_status_write_changes_no_metadata_of_a_custom_resource(watched: Watched) -> None:
    watched.make(VM, spec={})
    written = watched.store.patch(ref(VM), {"metadata": {"labels": {"a": "b"}}, "status": {"a": 1}}, "status")
    assert "labels" not in written["metadata"]


def test_an_instance_has_no_status_subresource_and_its_generation_grows(watched: Watched) -> None:
    watched.make(VMI, spec={}, status={"phase": "Pending"})
    for phase in ("Scheduling", "Scheduled", "Running"):
        watched.store.patch(ref(VMI), {"status": {"phase": phase}})
    assert watched.store.get(ref(VMI))["metadata"]["generation"] == 4
    with pytest.raises(NotFound, match="virtualmachineinstances/status"):
        watched.store.patch(ref(VMI), {"status": {"phase": "Failed"}}, "status")


def test_a_spec_change_raises_the_generation_and_a_label_does_not(watched: Watched) -> None:
    watched.make(VM, spec={"runStrategy": "Halted"})
    watched.store.patch(ref(VM), {"metadata": {"labels": {"a": "b"}}})
    assert watched.store.get(ref(VM))["metadata"]["generation"] == 1
    watched.store.patch(ref(VM), {"spec": {"runStrategy": "Always"}})
    assert watched.store.get(ref(VM))["metadata"]["generation"] == 2


def test_a_removed_field_of_the_spec_raises_the_generation(watched: Watched) -> None:
    watched.make(CONFIG_MAP, data={"a": "b"}, immutable=False)
    changed = watched.store.patch(ref(CONFIG_MAP), {"immutable": None})
    assert changed["metadata"]["resourceVersion"] != "2"
    assert "immutable" not in changed


def test_what_the_server_sets_cannot_be_patched(watched: Watched) -> None:
    made = watched.make(VM, spec={})
    wanted = {"uid": "mine", "generation": 9, "name": "other", "creationTimestamp": "never"}
    assert watched.store.patch(ref(VM), {"metadata": wanted}) is made


def test_a_finalizer_holds_an_object_until_it_is_taken_off(watched: Watched) -> None:
    watched.make(VM, meta={"finalizers": ["a/b"]}, spec={})
    assert watched.store.delete(ref(VM), STAMP) is None
    held = watched.store.get(ref(VM))
    assert (held["metadata"]["deletionTimestamp"], held["metadata"]["generation"]) == (STAMP, 2)
    assert watched.store.delete(ref(VM), STAMP) is None, "again: nothing more happens"
    watched.store.patch(ref(VM), {"metadata": {"finalizers": None}})
    assert watched.types == ["ADDED", "MODIFIED", "DELETED"]
    with pytest.raises(NotFound, match=r'virtualmachines\.kubevirt\.io "a" not found'):
        watched.store.get(ref(VM))


def test_a_name_of_an_object_being_deleted_is_taken_and_says_so(watched: Watched) -> None:
    watched.make(VM, "vm1", meta={"finalizers": ["a/b"]}, spec={})
    with pytest.raises(AlreadyExists, match=r'^virtualmachines\.kubevirt\.io "vm1" already exists$'):
        watched.make(VM, "vm1")
    watched.store.delete(ref(VM, "vm1"), STAMP)
    text = r'^object is being deleted: virtualmachines\.kubevirt\.io "vm1" already exists$'
    with pytest.raises(AlreadyExists, match=text):
        watched.make(VM, "vm1")


def test_a_delete_of_another_uid_is_a_conflict(watched: Watched) -> None:
    first = watched.make(PVC, spec={})
    watched.store.delete(ref(PVC), STAMP, uid=first["metadata"]["uid"])
    second = watched.make(PVC, spec={})
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    with pytest.raises(Conflict, match="UID in the precondition"):
        watched.store.delete(ref(PVC), STAMP, uid=first["metadata"]["uid"])
    assert watched.store.get(ref(PVC)) is second


def test_a_patch_with_a_stale_resource_version_is_a_conflict(watched: Watched) -> None:
    made = watched.make(VM, spec={"runStrategy": "Halted"})
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    watched.store.patch(ref(VM), {**stale, "spec": {"runStrategy": "Always"}})
    with pytest.raises(
        Conflict, match=r'Operation cannot be fulfilled on .*virtualmachines.* "a": the object'
    ):
        watched.store.patch(ref(VM), {**stale, "spec": {"runStrategy": "Halted"}})


def test_a_pod_on_a_node_goes_when_its_kubelet_says_so(watched: Watched) -> None:
    watched.make(POD, "placed", spec={"nodeName": "n"})
    watched.make(POD, "waiting", spec={})
    assert watched.store.delete(ref(POD, "waiting"), STAMP) is not None
    assert watched.store.delete(ref(POD, "placed"), STAMP) is None
    assert watched.store.get(ref(POD, "placed"))["metadata"]["deletionTimestamp"] == STAMP
    assert watched.store.delete(ref(POD, "placed"), STAMP, grace_s=0) is not None
    assert watched.types[-3:] == ["DELETED", "MODIFIED", "DELETED"]


def test_a_dry_run_changes_nothing(watched: Watched) -> None:
    answer = watched.store.create(manifest(VM, spec={}), STAMP, dry_run=True)
    assert answer["metadata"]["generation"] == 1
    made = watched.make(VM, spec={"runStrategy": "Halted"})
    watched.store.patch(ref(VM), {"spec": {"runStrategy": "Always"}}, dry_run=True)
    assert watched.store.get(ref(VM)) is made
    assert watched.types == ["ADDED"]


def test_nothing_is_made_in_a_namespace_that_is_absent_or_going(watched: Watched) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        watched.make(VM, namespace="nowhere")
    watched.store.patch(Ref(NAMESPACE, "", "ns"), {"metadata": {"finalizers": ["kubernetes"]}})
    watched.store.delete(Ref(NAMESPACE, "", "ns"), STAMP)
    with pytest.raises(Conflict, match="namespace ns is being terminated"):
        watched.make(VM)
    assert watched.make(NODE, spec={}), "cluster-wide kinds need none"


def test_dependents_follow_owner_references(watched: Watched) -> None:
    owner = watched.make(VM, spec={})
    uid = owner["metadata"]["uid"]
    mine = [{"kind": "VirtualMachine", "name": "a", "uid": uid}]
    watched.make(DATA_VOLUME, "owned", meta={"ownerReferences": mine}, spec={})
    watched.make(DATA_VOLUME, "adopted", spec={})
    watched.store.patch(ref(DATA_VOLUME, "adopted"), {"metadata": {"ownerReferences": mine}})
    assert [each.name for each in watched.store.dependents(uid)] == ["owned", "adopted"]
    watched.store.patch(ref(DATA_VOLUME, "owned"), {"metadata": {"ownerReferences": None}})
    watched.store.delete(ref(DATA_VOLUME, "adopted"), STAMP)
    assert watched.store.dependents(uid) == []
    assert watched.store.lives(uid)


def test_a_dump_loaded_elsewhere_goes_on_where_it_was(watched: Watched) -> None:
    owner = watched.make(VM, spec={})
    mine = [{"kind": "VirtualMachine", "name": "a", "uid": owner["metadata"]["uid"]}]
    watched.make(DATA_VOLUME, meta={"ownerReferences": mine}, spec={})
    other = Store(lambda *_: None)
    other.load(copy.deepcopy(watched.store.dump()))
    assert other.dump() == watched.store.dump()
    assert other.dependents(owner["metadata"]["uid"]) == [ref(DATA_VOLUME)]
    one, two = (each.create(manifest(PVC, "next"), STAMP) for each in (other, watched.store))
    assert one == two


def test_committed_objects_are_never_changed(watched: Watched) -> None:
    labels = {"labels": {"a": "b"}, "finalizers": ["a/b"]}
    watched.store.create(frozen(manifest(VM, meta=labels, spec={"template": {"x": [1]}})), STAMP)
    snapshots: list[tuple[Any, Any]] = []
    writes: list[tuple[dict[str, Any], str]] = [
        ({"spec": {"template": {"y": 2}}}, ""),
        ({"metadata": {"labels": {"a": None, "c": "d"}}}, ""),
        ({"status": {"conditions": [{"type": "Ready"}]}}, "status"),
        ({"status": {"conditions": [], "created": True}}, "status"),
    ]
    for change, subresource in writes:
        now = watched.store.get(ref(VM))
        snapshots.append((now, copy.deepcopy(now)))
        watched.store.patch(ref(VM), frozen(change), subresource)
    watched.store.delete(ref(VM), STAMP)
    watched.store.patch(ref(VM), {"metadata": {"finalizers": None}})
    assert all(held == then for held, then in snapshots)


@pytest.mark.parametrize(
    "wrong", [{}, {"kind": "Pod"}, {"kind": "Pod", "metadata": {}}, {"metadata": {"name": "a"}}]
)
def test_an_object_without_kind_or_name_is_invalid(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"apiVersion, kind and metadata\.name"):
        validated(wrong)
