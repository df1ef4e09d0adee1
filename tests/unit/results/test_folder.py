"""The folder store: whole objects, one winner, and one clear line for what is wrong with the folder."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


def test_what_a_killed_write_left_is_no_key(store: FolderStore) -> None:
    (store.root / "a").mkdir()
    (store.root / "a" / ".b.json.0123.tmp").write_bytes(b"half")
    assert store.keys("") == []


def test_a_write_leaves_nothing_but_the_object(store: FolderStore) -> None:
    store.put("a/b", b"1")
    store.put_new("a/b", b"2")
    assert [path.name for path in (store.root / "a").iterdir()] == ["b"]
    assert [path.name for path in store.root.iterdir()] == ["a"]


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
        ("gs://bucket", "store gs://bucket: gs:// is not supported; name a folder or s3://BUCKET/PREFIX"),
        (" ", "store: no folder is named; give --store FOLDER"),
    ],
)
def test_an_address_that_is_no_folder_is_refused_in_one_line(address: str, says: str) -> None:
    with pytest.raises(StoreError) as refusal:
        open_store(address)
    assert str(refusal.value) == says


def test_the_spool_of_a_folder_is_in_it(tmp_path: Path) -> None:
    assert spool_folder(open_store(str(tmp_path)), "r") == tmp_path / "_spool" / "r"
