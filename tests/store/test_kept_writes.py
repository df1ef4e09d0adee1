"""What a run kept on its machine while its store was away, and what becomes of it later."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.errors import InUse, StageError, StoreAway, StoreError
from infra.results.commits import run_folders
from infra.results.left import is_overtaken
from infra.results.manifest import manifest_key, read_manifest, write_first_manifest, write_manifest
from infra.results.open import spool_folder
from infra.results.run_results import open_results
from infra.results.s3 import S3Store
from infra.results.uploads import send_kept, uploading, waiting_writes
from tasks.records import TABLES
from tests.store.fault_proxy import PASS, Answer, Proxy, always
from tests.unit.results.rows import CELL, deploys, read

AWAY = Answer(503, "SlowDown")
FOLDERS = run_folders("r", TABLES)


def kept_writes(
    store: S3Store, proxy: Proxy, tmp_path: Path, fault: Answer = AWAY, says: str = "kept"
) -> int:
    """How many writes a run keeps that has begun and whose store then goes away, and stays away."""
    write_first_manifest(store, "r", {"started_at": "early", "finished_at": None, "sessions": []})

    def lose() -> None:
        with uploading(store, "r", FOLDERS, print) as uploads_:
            results = open_results(uploads_, "r", "virtual", TABLES, tmp_path / "spool")
            proxy.plan = always(fault)
            attempt = results.begin(CELL)
            attempt.add("vm_deploys", deploys(3))
            attempt.commit({})

    with pytest.raises(StageError, match=says):
        lose()
    return waiting_writes(store, "r")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (AWAY, "answers 503 SlowDown"),
        (Answer(400, "ExpiredToken"), "these credentials have expired; get new ones"),
    ],
    ids=["away", "expired"],
)
def test_a_store_that_stays_away_gets_everything_from_the_next_process(
    store: S3Store, proxy: Proxy, tmp_path: Path, fault: Answer, says: str
) -> None:
    lost = "nothing is lost, go on with the same --run-id when the store answers$"
    assert kept_writes(store, proxy, tmp_path, fault, f"{says}.*{lost}") > 0
    proxy.plan = always(PASS)
    assert read(store).is_empty()
    with uploading(store, "r", FOLDERS, lambda line: None):
        assert read(store)["attempt"].to_list() == [1] * 3
    assert not list(spool_folder(store, "r").glob("outbox*"))


def test_what_was_kept_stays_when_the_next_process_cannot_send_it_either(
    store: S3Store, proxy: Proxy, tmp_path: Path
) -> None:
    kept = kept_writes(store, proxy, tmp_path)
    with pytest.raises(StoreAway), uploading(store, "r", FOLDERS, print):
        pass
    assert waiting_writes(store, "r") == kept > 0
    proxy.plan = always(PASS)
    with uploading(store, "r", FOLDERS, print):
        assert read(store)["attempt"].to_list() == [1] * 3


def next_session(store: S3Store) -> None:
    with uploading(store, "r", FOLDERS, print):
        pass


SENT_BY: dict[str, Callable[[S3Store], None]] = {
    "the next session": next_session,
    "a command": lambda store: send_kept(store, "r", print),
}


@pytest.mark.parametrize("sent_by", list(SENT_BY))
def test_a_run_that_was_deleted_meanwhile_does_not_come_back_as_half_a_run(
    store: S3Store, proxy: Proxy, tmp_path: Path, sent_by: str
) -> None:
    kept = kept_writes(store, proxy, tmp_path)
    proxy.plan = always(PASS)
    store.delete(manifest_key("r"))
    says = rf"^run r was deleted from the store s3://\S+ while {kept} writes .*; choose another --run-id$"
    with pytest.raises(StoreError, match=says) as refusal:
        SENT_BY[sent_by](store)
    assert refusal.value.exit_code == 2
    assert store.keys("") == []
    assert waiting_writes(store, "r") == 0
    assert len(list(spool_folder(store, "r").glob("outbox-lost-*/pending/*.json"))) == kept


def test_a_run_whose_first_manifest_was_kept_is_a_whole_run(store: S3Store, proxy: Proxy) -> None:
    def lose() -> None:
        with uploading(store, "r", FOLDERS, print) as uploads_:
            proxy.plan = always(AWAY)
            write_first_manifest(uploads_, "r", {"sessions": []})
            write_manifest(uploads_, "r", {"sessions": [1]})

    with pytest.raises(StageError):
        lose()
    proxy.plan = always(PASS)
    told: list[str] = []
    send_kept(store, "r", told.append)
    assert told == ["upload        2 writes that were kept on this machine are in the store now"]
    assert read_manifest(store, "r") == {"run_id": "r", "sessions": [1]}
    assert waiting_writes(store, "r") == 0
    send_kept(store, "r", told.append)
    assert len(told) == 1


EARLY = {"started_at": "early", "sessions": []}


@pytest.mark.parametrize(
    "stored",
    [EARLY | {"finished_at": "now"}, {"started_at": "later", "finished_at": None, "sessions": []}],
    ids=["finished", "begun again"],
)
def test_of_a_run_with_which_another_went_on_nothing_is_sent_and_what_was_kept_is_set_aside(
    store: S3Store, proxy: Proxy, tmp_path: Path, stored: dict[str, object]
) -> None:
    def lose() -> None:
        with uploading(store, "r", FOLDERS, print) as uploads_:
            proxy.plan = always(AWAY)
            write_manifest(uploads_, "r", EARLY | {"sessions": ["mine"]})
            open_results(uploads_, "r", "virtual", TABLES, tmp_path / "spool").begin(CELL).commit({})

    write_first_manifest(store, "r", EARLY)
    with pytest.raises(StageError):
        lose()
    proxy.plan = always(PASS)
    theirs = {**stored, "sessions": ["theirs"]}
    write_manifest(store, "r", theirs)
    told: list[str] = []
    send_kept(store, "r", told.append)
    (aside,) = spool_folder(store, "r").glob("outbox-lost-*")
    assert told == [
        "upload        another process went on with this run, so 2 writes that were kept on this machine "
        f"are not sent but set aside in {aside}"
    ]
    assert read_manifest(store, "r") == {**theirs, "run_id": "r"}
    assert store.keys("_commits/") == []
    assert waiting_writes(store, "r") == 0


def test_kept_writes_that_a_finished_run_has_already_are_dropped(
    store: S3Store, proxy: Proxy, tmp_path: Path
) -> None:
    kept = kept_writes(store, proxy, tmp_path)
    proxy.plan = always(PASS)
    bodies = spool_folder(store, "r") / "outbox/bodies"
    for path in (each for each in bodies.rglob("*") if each.is_file()):
        store.put(str(path.relative_to(bodies)), path.read_bytes())
    write_manifest(store, "r", EARLY | {"finished_at": "now"})
    told: list[str] = []
    with uploading(store, "r", FOLDERS, told.append):
        pass
    assert told == [
        f"upload        the store has the {kept} writes that were kept on this machine; they are gone here"
    ]
    assert not list(spool_folder(store, "r").glob("outbox*"))


def test_a_run_that_goes_on_after_it_was_finished_is_not_overtaken() -> None:
    finished = EARLY | {"finished_at": "now", "sessions": [1]}
    assert not is_overtaken(finished, EARLY | {"finished_at": None, "sessions": [1]})
    assert not is_overtaken(finished, EARLY | {"finished_at": None, "sessions": [1, 2]})
    assert is_overtaken(finished, EARLY | {"finished_at": None, "sessions": []})
    assert not is_overtaken(EARLY | {"finished_at": None}, None)


def test_of_two_that_begin_a_run_the_second_is_refused(store: S3Store) -> None:
    write_first_manifest(store, "r", {"n": 1})
    with pytest.raises(InUse, match="run r: another process has begun it in this store; wait until"):
        write_first_manifest(store, "r", {"n": 2})


def test_what_another_process_committed_meanwhile_is_not_overwritten(
    store: S3Store, proxy: Proxy, tmp_path: Path
) -> None:
    kept_writes(store, proxy, tmp_path)
    proxy.plan = always(PASS)
    other = open_results(store, "r", "virtual", TABLES, tmp_path / "other").begin(CELL)
    other.add("vm_deploys", deploys(2))
    other.commit({})
    with (
        pytest.raises(
            InUse, match=r"another process has committed it, .* is set aside .*; start this run again$"
        ),
        uploading(store, "r", FOLDERS, lambda line: None),
    ):
        pass
    assert len(read(store)) == 2
    with uploading(store, "r", FOLDERS, lambda line: None):
        pass
