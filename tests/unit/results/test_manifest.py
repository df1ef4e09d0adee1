"""What a store knows of a run as a whole."""

from typing import Any

import pytest

from infra.errors import ProfileError, StoreError
from infra.results.folder import FolderStore
from infra.results.lock import is_at_work, only_process
from infra.results.manifest import (
    check_run_id,
    check_same_profile,
    new_nonce,
    nonce_of,
    read_manifest,
    read_manifests,
    write_manifest,
)
from infra.results.run_results import RunResults
from tests.unit.results.rows import CELL


def test_a_manifest_reads_back_with_its_run_id(store: FolderStore) -> None:
    write_manifest(store, "r", {"verdict": "valid"})
    write_manifest(store, "r", {"verdict": "degraded"})
    assert read_manifest(store, "r") == {"run_id": "r", "verdict": "degraded"}
    assert read_manifest(store, "other") is None


def test_runs_are_listed_and_foreign_files_passed_over(store: FolderStore) -> None:
    for run_id in ("b", "a"):
        write_manifest(store, run_id, {"n": run_id})
    for name, body in {
        "notes.txt": b"",
        "list.json": b"[]",
        "half.json": b"{",
        "copy.json": b'{"run_id": "a"}',
    }.items():
        store.put(f"_manifests/{name}", body)
    assert read_manifests(store) == {name: {"n": name, "run_id": name} for name in ("a", "b")}
    told: list[str] = []
    assert list(read_manifests(store, told.append)) == ["a", "b"]
    assert told == [
        f"{store.address(f'_manifests/{name}.json')} is not shown: a damaged manifest, or none"
        for name in ("copy", "half", "list")
    ]


def test_a_damaged_manifest_is_named(store: FolderStore) -> None:
    store.put("_manifests/r.json", b"{")
    with pytest.raises(
        StoreError, match=r"_manifests/r\.json: this manifest is damaged; put back a copy of it$"
    ):
        read_manifest(store, "r")


@pytest.mark.parametrize("run_id", ["a", "0", "a-b", "a" * 40])
def test_a_run_id_is_lower_case_letters_digits_and_dashes(run_id: str) -> None:
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize("run_id", ["", "-a", "a-", "A", "a_b", "a" * 41, "../a", "a\n", "é"])
def test_anything_else_is_refused_in_one_line(run_id: str) -> None:
    with pytest.raises(
        ProfileError, match=r"^run id .*: give --run-id 1 to 40 lower-case letters, digits and dashes"
    ):
        check_run_id(run_id)


PROFILE: dict[str, Any] = {"boot": {"batches": (100, 200), "prime": False}, "seed": 1, "tags": {}}


def test_the_same_profile_passes_whether_it_was_stored_or_not() -> None:
    check_same_profile("r", {**PROFILE, "boot": {"prime": False, "batches": [100, 200]}}, PROFILE)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {**PROFILE, "boot": {"batches": (100, 400), "prime": True}},
            "boot.batches differs: [100,200] then, [100,400] now",
        ),
        ({"boot": PROFILE["boot"], "tags": {}}, "seed differs: 1 then, absent now"),
        ({**PROFILE, "io": {"depth": 1}}, "io.depth differs: absent then, 1 now"),
        ({**PROFILE, "tags": {"a": None}}, "tags differs: {} then, absent now"),
    ],
)
def test_another_profile_is_refused_with_the_first_key_that_differs(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ProfileError) as refusal:
        check_same_profile("r", PROFILE, given)
    assert str(refusal.value) == f"run r was started with another profile ({says}); choose another --run-id"


def test_a_run_keeps_its_nonce_and_no_other_has_it(store: FolderStore) -> None:
    nonce = nonce_of(store, "r")
    assert nonce_of(store, "r") == nonce
    assert len({nonce, nonce_of(store, "other"), new_nonce(), new_nonce()}) == 4
    assert len(nonce) == 32


def test_a_damaged_ledger_is_named(store: FolderStore) -> None:
    for body in (b"{", b"[]", b'{"nonce": 1}'):
        store.put("_ledger/r.json", body)
        with pytest.raises(
            StoreError, match=r"_ledger/r\.json: the run's ledger is damaged; put back a copy of it$"
        ):
            nonce_of(store, "r")


def test_a_ledger_that_is_gone_is_named_when_the_run_has_created_something(
    store: FolderStore, results: RunResults
) -> None:
    nonce = nonce_of(store, "r")
    store.delete("_ledger/r.json")
    assert nonce_of(store, "r") != nonce
    attempt = results.begin(CELL)
    attempt.add("objects", [{"kind": "Namespace", "name": "x"}])
    attempt.commit({})
    store.delete("_ledger/r.json")
    with pytest.raises(StoreError, match=r"_ledger/r\.json: the run's ledger is gone; put back a copy of it"):
        nonce_of(store, "r")


def test_a_run_is_at_work_while_a_process_holds_it(store: FolderStore) -> None:
    assert not is_at_work(store, "r")
    with only_process(store, "r"):
        assert is_at_work(store, "r")
        assert not is_at_work(store, "other")
    assert not is_at_work(store, "r")
