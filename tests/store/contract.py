"""The contract of an object store and of results in it; `make_store` opens one store as each process does."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.errors import InUse, StoreError
from infra.results.commits import read_commits
from infra.results.lazy import scan_lazy
from infra.results.manifest import read_manifest, read_manifests, write_manifest
from infra.results.port import Cell, Commit, ObjectStore
from infra.results.read import Which, scan
from infra.results.removal import delete_run
from infra.results.run_results import RunResults, open_results
from infra.results.uploads import uploading
from tasks.records import TABLES
from tests.unit.results.rows import CELL, deploys, rewrite

MakeStore = Callable[[], ObjectStore]
Opened = Callable[..., RunResults]


class ObjectStoreContract:
    """Objects are whole, keys are found, and one writer wins."""

    rounds = 200
    many = 1_050

    @pytest.fixture
    def store(self, make_store: MakeStore) -> ObjectStore:
        return make_store()

    def test_an_object_reads_back_as_it_was_written_last(self, store: ObjectStore) -> None:
        store.put("a/b.json", b"old")
        store.put("a/b.json", b"new")
        assert store.get("a/b.json") == b"new"

    def test_what_is_not_there_is_none_and_may_be_deleted(self, store: ObjectStore) -> None:
        assert [store.get(key) for key in ("b", "c/d")] == [None, None]
        for key in ("b", "c/d"):
            store.delete(key)

    def test_what_was_deleted_is_gone(self, store: ObjectStore) -> None:
        store.put("a/b", b"1")
        store.delete("a/b")
        assert store.get("a/b") is None
        assert store.keys("") == []

    def test_put_new_leaves_the_first_one_alone(self, store: ObjectStore) -> None:
        assert [store.put_new("k", body) for body in (b"first", b"second")] == [True, False]
        assert store.get("k") == b"first"

    def test_put_new_of_the_same_bytes_is_still_the_second_one(self, store: ObjectStore) -> None:
        assert [store.put_new("k", b"same") for _ in range(2)] == [True, False]

    def test_large_and_empty_objects_are_whole(self, store: ObjectStore) -> None:
        bodies = {"large": bytes(range(256)) * 40_000, "empty": b""}
        for key, body in bodies.items():
            store.put(key, body)
        assert {key: store.get(key) for key in bodies} == bodies

    def test_of_two_writers_racing_for_a_key_exactly_one_wins(self, make_store: MakeStore) -> None:
        barrier = Barrier(2, timeout=60)

        def write(who: bytes) -> list[bool]:
            mine = make_store()
            keys = (f"_commits/r/{i}.json" for i in range(self.rounds))
            return [barrier.wait() >= 0 and mine.put_new(key, who) for key in keys]

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(write, [b"first", b"second"])
        assert [a + b for a, b in zip(first, second, strict=True)] == [1] * self.rounds
        store = make_store()
        assert [store.get(f"_commits/r/{i}.json") == b"first" for i in range(self.rounds)] == first

    def test_keys_are_sorted_and_start_with_the_prefix_whatever_it_cuts(self, store: ObjectStore) -> None:
        for key in ("t/run_id=r/deploy-2-1", "t/run_id=r/deploy-10-1", "t/run_id=rr/x", "u/v", "top"):
            store.put(key, b"")
        assert store.keys("t/run_id=r/deploy-") == ["t/run_id=r/deploy-10-1", "t/run_id=r/deploy-2-1"]
        assert store.keys("t/run_id=r") == [*store.keys("t/run_id=r/"), "t/run_id=rr/x"]
        assert len(store.keys("")) == 5
        assert store.keys("nothing/here") == []

    def test_more_keys_than_one_answer_holds_are_all_found(self, store: ObjectStore) -> None:
        names = [f"many/{i:04}" for i in range(self.many)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: store.put(name, b""), names))
        assert store.keys("many/") == names

    def test_it_tells_when_an_object_was_written_last(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "b/3"):
            store.put(key, b"")
        written = store.written("a/")
        assert sorted(key for _, key in written) == ["a/1", "a/2"]
        assert all(abs(datetime.now(UTC) - at) < timedelta(minutes=2) for at, _ in written)

    def test_names_with_a_leading_dot_are_no_keys(self, store: ObjectStore) -> None:
        store.put(".hidden", b"")
        store.put("a/.draft", b"")
        assert store.keys("") == []

    def test_a_key_cannot_lead_out_of_the_store(self, store: ObjectStore) -> None:
        for key in ("../x", "a/../../x", "/etc/passwd"):
            with pytest.raises(ValueError, match="leads out of the store"):
                store.put(key, b"")


class ResultsContract:
    """Batches are visible whole or not at all, and what is damaged is named."""

    rounds = 200
    sizes = 20

    @pytest.fixture
    def store(self, make_store: MakeStore) -> ObjectStore:
        return make_store()

    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Callable[..., RunResults]]:
        """Results of run `r`, each as on a machine of its own."""
        results: list[RunResults] = []

        def open_again(store: ObjectStore, machine: str = "one") -> RunResults:
            results.append(open_results(store, "r", "virtual", TABLES, tmp_path / machine))
            return results[-1]

        yield open_again
        for each in results:
            each.close()

    def test_a_batch_is_seen_when_it_is_committed(self, store: ObjectStore, opened: Opened) -> None:
        attempt = opened(store).begin(CELL)
        attempt.add("vm_deploys", deploys(2))
        assert read(store).is_empty()
        attempt.commit({"n": 2}, state=b"state")
        assert read(store)["vm"].to_list() == ["vm-00000", "vm-00001"]
        assert opened(store, "other").last_state() == b"state"

    def test_of_two_writers_racing_for_a_batch_one_wins_and_the_other_says_so(
        self, make_store: MakeStore, opened: Opened
    ) -> None:
        barrier = Barrier(2, timeout=60)

        def write(machine: str) -> list[bool]:
            mine, won = opened(make_store(), machine), []
            for i in range(self.rounds):
                barrier.wait()
                attempt = mine.begin(Cell("deploy", f"{i}"))
                attempt.add("vm_deploys", [{**deploys(1)[0], "reason": machine}])
                barrier.wait()
                won.append(_commits(attempt.commit))
            return won

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(write, ["one", "two"])
        assert [a + b for a, b in zip(first, second, strict=True)] == [1] * self.rounds
        winners = {each.cell.cell: each for each in read_commits(make_store(), "r")}
        assert len(winners) == self.rounds
        reasons = read(make_store(), "all")["reason"].to_list()
        assert reasons == ["one" if won else "two" for won in first]

    def test_a_part_without_a_commit_is_invisible(self, store: ObjectStore, opened: Opened) -> None:
        commit = committed(opened(store))
        store.delete("_commits/r/deploy-400-1-1.json")
        assert store.get(part_of(commit)[0]) is not None
        assert read(store).is_empty()
        assert opened(store, "other").begin(CELL).number == 2

    def test_a_commit_without_its_part_is_named(self, store: ObjectStore, opened: Opened) -> None:
        key = part_of(committed(opened(store)))[0]
        store.delete(key)
        with pytest.raises(StoreError, match=f"{key}: this part is gone"):
            read(store)

    def test_a_truncated_part_is_named(self, store: ObjectStore, opened: Opened) -> None:
        key = part_of(committed(opened(store)))[0]
        store.put(key, (store.get(key) or b"")[:-10])
        with pytest.raises(StoreError, match=f"{key}: this part is damaged"):
            read(store)

    def test_a_part_of_other_bytes_is_named(self, store: ObjectStore, opened: Opened) -> None:
        key = part_of(committed(opened(store)))[0]
        other = pa.BufferOutputStream()
        pq.write_table(TABLES["vm_deploys"].empty_table(), other)
        store.put(key, other.getvalue().to_pybytes())
        with pytest.raises(StoreError, match=f"{key}: this part is damaged"):
            read(store)

    def test_a_part_of_a_newer_version_is_refused(self, store: ObjectStore, opened: Opened) -> None:
        key = part_of(committed(opened(store)))[0]
        newer = pq.read_table(pa.BufferReader(store.get(key))).replace_schema_metadata(
            {"schema_version": "99"}
        )
        rewrite(store, key, newer)
        with pytest.raises(StoreError, match=rf"{key}: a newer virtscale wrote this part \(schema 99, "):
            read(store)

    def test_a_commit_that_is_none_is_named(self, store: ObjectStore, opened: Opened) -> None:
        committed(opened(store))
        store.put("_commits/r/deploy-400-1-1.json", b'{"stage": "deploy"}')
        with pytest.raises(StoreError, match=r"deploy-400-1-1\.json: this commit is damaged; put back"):
            read(store)

    def test_of_two_attempts_the_last_complete_one_is_read(self, store: ObjectStore, opened: Opened) -> None:
        results = opened(store)
        for complete in (True, True, False):
            attempt = results.begin(CELL)
            attempt.add("vm_deploys", deploys(1))
            attempt.commit({}, complete=complete)
        assert read(store)["attempt"].to_list() == [2]
        assert read(store, "all")["attempt"].to_list() == [1, 2, 3]

    def test_a_manifest_of_a_newer_version_is_refused_and_passed_over_in_lists(
        self, store: ObjectStore
    ) -> None:
        write_manifest(store, "old", {"schema": 1})
        store.put("_manifests/new.json", orjson.dumps({"schema": 99, "run_id": "new"}))
        told: list[str] = []
        assert list(read_manifests(store, told.append)) == ["old"]
        assert told == [
            "run new is not shown: a newer virtscale wrote this manifest (schema 99, this one knows 1); "
            "use that version"
        ]
        with pytest.raises(StoreError, match=r"_manifests/new.json: a newer virtscale wrote this manifest"):
            read_manifest(store, "new")

    def test_polars_reads_the_same_straight_from_the_store(self, store: ObjectStore, opened: Opened) -> None:
        committed(opened(store))
        store.put("vm_deploys/run_id=r/deploy-9-1-1-0.parquet", b"a part that nobody committed")
        lazy = scan_lazy(store, ["r", "none"], "vm_deploys", TABLES["vm_deploys"])
        assert lazy.collect().equals(read(store))
        assert lazy.filter(pl.col("vm") == "vm-00001").select("run_id", "vm").collect().rows() == [
            ("r", "vm-00001")
        ]
        nothing = scan_lazy(store, [], "vm_deploys", TABLES["vm_deploys"]).collect()
        assert nothing.schema == read(store).schema

    def test_a_reader_never_sees_half_a_batch(self, make_store: MakeStore, opened: Opened) -> None:
        def write() -> None:
            results = opened(make_store())
            for size in range(1, self.sizes + 1):
                attempt = results.begin(Cell("deploy", str(size)))
                attempt.add("vm_deploys", [{**row, "batch": size} for row in deploys(size)])
                attempt.commit({})

        store, seen = make_store(), 0
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not writing.done():
                batches = read(store).group_by("batch").len().rows()
                assert all(size == rows for size, rows in batches)
                seen += 1
            writing.result()
        assert seen > 1

    def test_a_run_is_deleted_wholly_and_no_other(self, store: ObjectStore, opened: Opened) -> None:
        committed(opened(store))
        for run_id in ("r", "rr"):
            write_manifest(store, run_id, {"schema": 1})
            store.put(f"reports/{run_id}/report.html", b"x")
        assert delete_run(store, "r", TABLES) > 0
        assert store.keys("") == ["_manifests/rr.json", "reports/rr/report.html"]
        assert delete_run(store, "r", TABLES) > 0

    @pytest.mark.parametrize("virtual_time", [False, True], ids=["real time", "virtual time"])
    def test_through_an_uploading_store_the_same_is_stored(
        self, make_store: MakeStore, opened: Opened, *, virtual_time: bool
    ) -> None:
        store = make_store()
        with uploading(store, "r", ["_commits/r/"], print, virtual_time=virtual_time) as uploads:
            results = opened(uploads)
            for _ in range(3):
                committed(results)
            assert read(uploads)["attempt"].to_list() == [3, 3]
        assert read(store).equals(read(make_store()))
        assert [each.attempt for each in read_commits(store, "r")] == [1, 2, 3]


def read(store: ObjectStore, which: Which = "last_complete") -> pl.DataFrame:
    return scan(store, "r", "vm_deploys", TABLES["vm_deploys"], which)


def committed(results: RunResults) -> Commit:
    attempt = results.begin(CELL)
    attempt.add("vm_deploys", deploys(2))
    return attempt.commit({"n": 2}, state=b"state")


def part_of(commit: Commit) -> tuple[str, int, str]:
    (part,) = commit.parts["vm_deploys"]
    return part


def _commits(commit: Callable[..., Commit]) -> bool:
    try:
        commit({})
        return True
    except InUse:
        return False
