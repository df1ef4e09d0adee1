"""The folder store: whole objects, one winner, and one clear line for what is wrong with the folder."""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from infra.errors import StoreError
from infra.results.folder import FolderStore, open_folder
from infra.results.open import open_store, spool_folder

NOBODY = 65534


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A folder that an ordinary user owns, and that user (root may do anything, so it is left)."""
    with tempfile.TemporaryDirectory(prefix="virtscale-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.geteuid() != 0:
            yield folder
            return
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(0)


def test_an_object_reads_back_as_it_was_written_last(store: FolderStore) -> None:
    store.put("a/b.json", b"old")
    store.put("a/b.json", b"new")
    assert store.get("a/b.json") == b"new"


def test_what_is_not_there_is_none_and_may_be_deleted(store: FolderStore) -> None:
    store.put("a", b"")
    assert [store.get(key) for key in ("b", "c/d", "a/b")] == [None, None, None]
    for key in ("b", "c/d", "a/b"):
        store.delete(key)


def test_put_new_leaves_the_first_one_alone(store: FolderStore) -> None:
    assert [store.put_new("k", body) for body in (b"first", b"second")] == [True, False]
    assert store.get("k") == b"first"


def test_of_two_writers_racing_for_a_key_exactly_one_wins_200_times(store: FolderStore) -> None:
    barrier = Barrier(2, timeout=30)

    def write(who: bytes) -> list[bool]:
        return [barrier.wait() >= 0 and store.put_new(f"_commits/r/{i}.json", who) for i in range(200)]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(write, [b"first", b"second"])
    assert [a + b for a, b in zip(first, second, strict=True)] == [1] * 200
    assert [store.get(f"_commits/r/{i}.json") == b"first" for i in range(200)] == first


def test_keys_are_sorted_and_start_with_the_prefix_whatever_it_cuts(store: FolderStore) -> None:
    for key in ("t/run_id=r/deploy-2-1", "t/run_id=r/deploy-10-1", "t/run_id=rr/x", "u/v", "top"):
        store.put(key, b"")
    assert store.keys("t/run_id=r/deploy-") == ["t/run_id=r/deploy-10-1", "t/run_id=r/deploy-2-1"]
    assert store.keys("t/run_id=r") == [*store.keys("t/run_id=r/"), "t/run_id=rr/x"]
    assert store.keys("") == [
        "t/run_id=r/deploy-10-1",
        "t/run_id=r/deploy-2-1",
        "t/run_id=rr/x",
        "top",
        "u/v",
    ]
    assert store.keys("nothing/here") == []


def test_what_a_killed_write_left_is_no_key(store: FolderStore) -> None:
    (store.root / "a").mkdir()
    (store.root / "a" / ".b.json.0123.tmp").write_bytes(b"half")
    assert store.keys("") == []


def test_a_write_leaves_nothing_but_the_object(store: FolderStore) -> None:
    store.put("a/b", b"1")
    store.put_new("a/b", b"2")
    assert [path.name for path in (store.root / "a").iterdir()] == ["b"]
    assert [path.name for path in store.root.iterdir()] == ["a"]


def test_a_key_cannot_lead_out_of_the_store(store: FolderStore) -> None:
    for key in ("../x", "a/../../x", "/etc/passwd"):
        with pytest.raises(ValueError, match="leads out of the store"):
            store.put(key, b"")


def test_only_the_owner_reads_the_ledger(store: FolderStore) -> None:
    store.put_new("_ledger/r.json", b"{}")
    store.put("_manifests/r.json", b"{}")
    assert (store.root / "_ledger/r.json").stat().st_mode & 0o777 == 0o600
    assert (store.root / "_manifests/r.json").stat().st_mode & 0o777 != 0o600


def test_the_address_is_where_a_person_finds_it(store: FolderStore) -> None:
    store.put("reports/r/report.html", b"x")
    assert Path(store.address("reports/r/report.html")).read_bytes() == b"x"


def test_a_store_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        for writable in (True, False):
            with pytest.raises(
                StoreError, match=r"^store \S+: .*(not a folder|no such folder).*; choose another --store$"
            ):
                open_folder(path, writable=writable)


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(ordinary_user: Path) -> None:
    ordinary_user.chmod(0o555)
    with pytest.raises(StoreError) as refusal:
        open_folder(ordinary_user)
    expected = f"store {ordinary_user}: cannot be written (permission denied); choose another --store"
    assert str(refusal.value) == expected
    assert open_folder(ordinary_user, writable=False).keys("") == []


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(ordinary_user: Path) -> None:
    ordinary_user.chmod(0o555)
    with pytest.raises(
        StoreError, match=r"/new: cannot be written \(permission denied\); choose another --store$"
    ):
        open_folder(ordinary_user / "new")


def test_a_folder_that_cannot_be_read_is_refused_in_one_line(ordinary_user: Path) -> None:
    ordinary_user.chmod(0o333)
    for writable in (True, False):
        with pytest.raises(
            StoreError, match=r": cannot be read \(permission denied\); choose another --store$"
        ):
            open_folder(ordinary_user, writable=writable)


def test_a_store_that_is_only_read_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no such folder; choose another --store$"):
        open_folder(tmp_path / "none", writable=False)
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_file_in_the_place_of_a_table_is_named(store: FolderStore) -> None:
    (store.root / "batches").write_text("")
    with pytest.raises(StoreError, match=r"/batches\S*: is not a folder; choose another --store$"):
        store.put("batches/run_id=r/x.parquet", b"")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (
            "s3://bucket/prefix",
            "store s3://bucket/prefix: s3:// comes with “Results in S3”, not yet; name a folder",
        ),
        ("gs://bucket", "store gs://bucket: gs:// is not supported; name a folder"),
        (" ", "store: no folder is named; give --store FOLDER"),
    ],
)
def test_an_address_that_is_no_folder_is_refused_in_one_line(address: str, says: str) -> None:
    with pytest.raises(StoreError) as refusal:
        open_store(address)
    assert str(refusal.value) == says


def test_the_spool_of_a_folder_is_in_it(tmp_path: Path) -> None:
    assert spool_folder(open_store(str(tmp_path)), "r") == tmp_path / "_spool" / "r"
