"""The commit protocol: whole batches or nothing, one winner, and nothing known is lost by a kill."""

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from infra.errors import StateLost, StoreError
from infra.results.commits import attempt_name, attempt_of, commit_key, part_prefix, state_key
from infra.results.folder import FolderStore
from infra.results.port import Attempt, Cell, Results
from infra.results.run_results import RunResults
from tests.unit.results.rows import CELL, deploys, read

ROOT = Path(__file__).parents[3]
Opened = Callable[..., RunResults]

OPEN = """
import os, signal, sys
from pathlib import Path
from infra.results.folder import FolderStore
from infra.results.open import spool_folder
from infra.results.run_results import open_results
from tasks.records import TABLES
from tests.unit.results.rows import CELL, deploys

class Dying(FolderStore):
    when = ""
    def put_new(self, key, body):
        if self.when == "before" and key.startswith("_commits"):
            os.kill(os.getpid(), signal.SIGKILL)
        done = super().put_new(key, body)
        if self.when == "after" and key.startswith("_commits"):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

store = Dying(Path(sys.argv[1]))
results = open_results(store, "r", "virtual", TABLES, spool_folder(store, "r"))
attempt = results.begin(CELL)
"""
ADD_FOR_EVER = """
i = 0
while True:
    attempt.add("vm_deploys", deploys(1, i))
    i += 1
    print(i, flush=True)
"""
DIE_AT_THE_COMMIT = """
attempt.add("vm_deploys", deploys(7))
attempt.add("objects", [{"kind": "Pod", "name": "a", "uid": "1"}])
store.when = sys.argv[2]
attempt.commit({"n": 7}, state=b"after")
"""


def commit_batch(results: Results, n: int = 3, cell: Cell = CELL, state: bytes = b"") -> None:
    attempt: Attempt = results.begin(cell)
    attempt.add("vm_deploys", deploys(n))
    attempt.commit({"n": n}, state=state)


def test_a_batch_is_visible_by_its_commit_and_not_before(
    results: RunResults, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[int] = []

    def look_first(key: str, body: bytes) -> bool:
        before.append(len(read(store)))
        return FolderStore.put_new(store, key, body)

    monkeypatch.setattr(store, "put_new", look_first)
    commit_batch(results)
    assert before == [0, 0]
    assert len(read(store)) == 3


def test_what_an_attempt_stores_is_known_by_its_key() -> None:
    cell = Cell("io", "129-4-read", 2)
    name = attempt_name(cell, 3)
    keys = [
        part_prefix("io_cells", "r", f"{name}-0.parquet"),
        state_key("r", cell, 3),
        commit_key("r", cell, 3),
    ]
    assert {attempt_of(key) for key in keys} == {name}
    assert attempt_of("_manifests/r.json") != attempt_of("_ledger/r.json")


def test_a_part_that_no_commit_names_is_invisible(results: RunResults, store: FolderStore) -> None:
    commit_batch(results)
    part = store.keys("vm_deploys/")[0]
    store.put(part.replace("-1-0.parquet", "-1-1.parquet"), store.get(part) or b"")
    store.put(part.replace("-400-1-1-0", "-800-1-1-0"), b"half a pa")
    assert len(read(store)) == 3


def test_a_commit_says_what_is_in_it(results: RunResults, store: FolderStore) -> None:
    attempt = results.begin(CELL)
    attempt.add("vm_deploys", deploys(3))
    attempt.add("objects", [])
    commit = attempt.commit({"b": 2, "a": [1.5]}, state=b"all of it")
    assert (commit.cell, commit.attempt, commit.complete, commit.sequence) == (CELL, 1, True, 0)
    assert [(table, [n for _, n, _ in parts]) for table, parts in commit.parts.items()] == [
        ("vm_deploys", [3])
    ]
    assert commit.summary == {"a": [1.5], "b": 2}
    assert commit.state == "_states/r/deploy-400-1-1.json.zst"
    assert results.commits() == [commit]
    assert results.last_complete(CELL) == commit
    assert results.last_complete(CELL._replace(repeat=2)) is None


def test_the_same_run_in_two_stores_is_the_same_bytes(opened: Opened, tmp_path: Path) -> None:
    stores = [FolderStore(tmp_path / name) for name in ("one", "two")]
    for store in stores:
        results = opened(store_=store)
        commit_batch(results, state=b"state" * 1000)
        commit_batch(results, 5, Cell("boot", "100"))
    one, two = ({key: store.get(key) for key in store.keys("")} for store in stores)
    assert one == two
    assert len(one) == 5


def test_commits_come_in_the_order_of_commit(opened: Opened) -> None:
    cells = [Cell("golden-image", "0"), Cell("deploy", "400"), Cell("boot", "100"), Cell("boot", "100", 2)]
    results = opened()
    for cell in cells:
        commit_batch(results, cell=cell)
    assert [each.cell for each in opened().commits()] == cells


def test_attempts_are_kept_and_the_last_complete_one_is_read(results: RunResults, store: FolderStore) -> None:
    for n, complete in ((3, True), (4, True), (5, False)):
        attempt = results.begin(CELL)
        attempt.add("vm_deploys", deploys(n))
        attempt.commit({}, complete=complete)
    assert [each.attempt for each in results.commits()] == [1, 2, 3]
    assert read(store)["attempt"].to_list() == [2] * 4
    assert len(read(store, which="all")) == 12


def test_two_writers_of_one_attempt_leave_one_whole_batch_every_time(
    opened: Opened, store: FolderStore
) -> None:
    rounds, barrier = 40, Barrier(2, timeout=30)

    def write(machine: int) -> list[str]:
        results = opened(f"machine-{machine}")
        outcomes = []
        for i in range(rounds):
            attempt = results.begin(Cell("deploy", str(i)))
            attempt.add("vm_deploys", deploys(2 + machine))
            barrier.wait()
            try:
                outcomes.append(f"attempt {attempt.commit({}).attempt}")
            except StoreError as error:
                outcomes.append(str(error))
            barrier.wait()
        return outcomes

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(write, [0, 1])
    won = [[outcome == "attempt 1" for outcome in outcomes] for outcomes in (first, second)]
    assert [a + b for a, b in zip(*won, strict=True)] == [1] * rounds
    assert sum("another process committed deploy" in outcome for outcome in [*first, *second]) == rounds
    assert len(read(store)) == 2 * sum(won[0]) + 3 * sum(won[1])


def test_a_lost_race_is_one_line_and_what_was_intended_stays_in_the_ledger(opened: Opened) -> None:
    first, second = opened("machine-1"), opened("machine-2")
    attempts = [results.begin(CELL) for results in (first, second)]
    attempts[1].add("objects", [{"kind": "Pod", "namespace": "n", "name": "b"}])
    attempts[0].commit({})
    with pytest.raises(
        StoreError, match=r"^store \S+: another process committed deploy 400 attempt 1 of run r first; "
    ):
        attempts[1].commit({})
    assert second.begin(CELL).number == 2
    assert second.ledger() == {("Pod", "n", "b"): {""}}
    assert [each.attempt for each in second.commits()] == [1]


def test_a_second_process_of_the_run_is_told_so_and_disturbs_nothing(
    opened: Opened, store: FolderStore
) -> None:
    attempt = opened().begin(CELL)
    attempt.add("vm_deploys", deploys(3))
    with pytest.raises(StoreError, match="another process is at work on deploy-400-1-1 of this run"):
        opened().begin(CELL)
    attempt.commit({})
    assert len(read(store)) == 3


def test_an_attempt_that_was_left_open_is_committed_as_incomplete(opened: Opened, store: FolderStore) -> None:
    results = opened()
    results.begin(CELL).add("vm_deploys", deploys(3))
    assert results.begin(CELL).number == 2
    results.close()
    commit = opened().commits()[0]
    assert (commit.complete, commit.attempt, commit.summary) == (False, 1, {"interrupted": True})
    assert len(read(store)) == 0
    assert read(store, which="all")["vm"].to_list() == [row["vm"] for row in deploys(3)]


def test_an_attempt_without_rows_leaves_nothing(results: RunResults) -> None:
    for _ in range(3):
        assert results.begin(CELL).number == 1
    assert results.commits() == []


def test_a_cell_whose_name_begins_with_another_is_another(results: RunResults) -> None:
    commit_batch(results, cell=Cell("io", "129-4"))
    commit_batch(results, cell=Cell("io", "129-4-1"))
    assert results.begin(Cell("io", "129")).number == 1
    assert results.begin(Cell("io", "129-4")).number == 2


def test_a_cell_cannot_name_another_folder(results: RunResults) -> None:
    for cell in (Cell("../x", "1"), Cell("deploy", "a/b"), Cell("deploy", ""), Cell("deploy", "1", 0)):
        with pytest.raises(ValueError, match="stage and cell are made of"):
            results.begin(cell)


def test_the_newest_state_is_kept_and_one_before_it(results: RunResults, store: FolderStore) -> None:
    assert results.last_state() is None
    for i in range(4):
        commit_batch(results, cell=Cell("deploy", str(100 * 2**i)), state=b"state %d" % i)
    commit_batch(results, cell=Cell("report", "0"))
    assert results.last_state() == b"state 3"
    assert store.keys("_states/") == [
        "_states/r/deploy-400-1-1.json.zst",
        "_states/r/deploy-800-1-1.json.zst",
    ]


@pytest.mark.parametrize("damage", [None, b"", b"not zstd", b"\x28\xb5\x2f\xfd", b"another", "cut"])
def test_a_state_that_is_gone_damaged_or_another_is_one_line(
    results: RunResults, store: FolderStore, damage: bytes | str | None
) -> None:
    commit_batch(results, state=b"state")
    key = store.keys("_states/")[0]
    whole = store.get(key) or b""
    store.delete(key)
    if damage is not None:
        store.put(key, damage if isinstance(damage, bytes) else whole[:-4])
    with pytest.raises(
        StateLost,
        match="the virtual cluster's state is gone or damaged, and the cluster with it; begin again",
    ):
        results.last_state()


def test_foreign_files_do_no_harm(results: RunResults, store: FolderStore) -> None:
    commit_batch(results)
    commit = store.get("_commits/r/deploy-400-1-1.json") or b""
    for key in (
        "_commits/r/notes.txt",
        "_commits/r/deploy-400-1-1 (copy).json",
        "_commits/r/deploy-400-1-1.json~",
    ):
        store.put(key, commit)
    store.put("_commits/r/deploy-800-1-1.json", commit)
    store.put("_commits/r/a/deploy-400-1-1.json", commit)
    store.put("vm_deploys/run_id=r/deploy-400-1-x.parquet", b"?")
    store.put("vm_deploys/run_id=r/README", b"?")
    store.put("_spool/r/deploy-400-1-x.spool", b"?")
    store.put("_spool/r/deploy-400-1-2.spool", b"no frame at all")
    assert len(read(store, which="all")) == 3
    assert results.begin(CELL).number == 2
    assert results.ledger() == {}


def test_a_damaged_commit_is_named(results: RunResults, store: FolderStore) -> None:
    store.put("_commits/r/deploy-400-1-1.json", b'{"stage": "deploy"}')
    with pytest.raises(StoreError, match=r"deploy-400-1-1\.json: this commit is damaged; put back a copy"):
        results.commits()


def test_rows_that_a_killed_process_had_added_are_all_kept(opened: Opened, store: FolderStore) -> None:
    command = [sys.executable, "-c", OPEN + ADD_FOR_EVER, str(store.root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(50)][-1]
        process.send_signal(signal.SIGKILL)
    attempt = opened().begin(CELL)
    kept = read(store, which="all")
    assert attempt.number == 2
    assert len(kept) >= seen
    assert kept["vm"].to_list() == [row["vm"] for row in deploys(len(kept))]
    assert len(read(store)) == 0


@pytest.mark.parametrize(("when", "complete"), [("before", False), ("after", True)])
def test_a_process_killed_at_its_commit_leaves_every_row_once(
    opened: Opened, store: FolderStore, when: str, complete: bool
) -> None:
    command = [sys.executable, "-c", OPEN + DIE_AT_THE_COMMIT, str(store.root), when]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert len(read(store)) == (7 if complete else 0)
    results = opened()
    assert results.ledger() == {("Pod", "", "a"): {"1"}}
    assert results.begin(CELL).number == 2
    assert [(each.attempt, each.complete) for each in results.commits()] == [(1, complete)]
    assert len(read(store, which="all")) == 7
    assert results.ledger() == {("Pod", "", "a"): {"1"}}
    assert results.last_state() == (b"after" if complete else None)


def test_an_attempt_killed_on_another_machine_does_not_block_this_one(
    opened: Opened, store: FolderStore
) -> None:
    command = [sys.executable, "-c", OPEN + DIE_AT_THE_COMMIT, str(store.root), "before"]
    subprocess.run(command, cwd=ROOT, check=False)
    results = opened("machine-2")
    commit_batch(results, 5)
    assert [each.attempt for each in results.commits()] == [2]
    assert len(read(store)) == 5


def test_the_ledger_knows_intents_and_uids_of_all_attempts(opened: Opened) -> None:
    results = opened()
    attempt = results.begin(CELL)
    attempt.add("objects", [{"kind": "Pod", "namespace": "n", "name": name} for name in ("a", "b")])
    attempt.add("objects", [{"kind": "Pod", "namespace": "n", "name": "a", "uid": "1"}])
    attempt.commit({}, complete=False)
    attempt = results.begin(CELL)
    attempt.add("objects", [{"kind": "Pod", "namespace": "n", "name": "a", "uid": "2"}])
    attempt.add("objects", [{"kind": "PersistentVolume", "name": "pv", "uid": "3"}])
    attempt.flush()
    expected = {("Pod", "n", "a"): {"1", "2"}, ("Pod", "n", "b"): {""}, ("PersistentVolume", "", "pv"): {"3"}}
    assert opened().ledger() == expected
    results.close()
    assert opened().ledger() == expected
