"""What is read of many runs: a manifest and an object of summaries for each that is shown."""

import os
from datetime import UTC, datetime, timedelta

import pytest

from infra.results.folder import FolderStore
from infra.results.manifest import latest_manifests, read_manifest, write_manifest
from infra.results.run_results import RunResults
from infra.results.summaries import read_summaries, write_summaries
from tests.unit.results.rows import CELL

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Read(FolderStore):
    """Remembers what was read of it."""

    gets: list[str]

    def get(self, key: str) -> bytes | None:
        self.gets.append(key)
        return super().get(key)


@pytest.fixture
def reading(store: FolderStore) -> Read:
    found = Read(store.root)
    found.gets = []
    return found


def test_summaries_of_a_finished_run_are_one_object(reading: Read, results: RunResults) -> None:
    results.begin(CELL).commit({"end_to_end_s": 1.5})
    write_manifest(reading, "r", {"n": 1, **write_summaries(reading, "r")})
    manifest = read_manifest(reading, "r")
    reading.gets.clear()
    assert list(read_summaries(reading, [manifest or {}])) == [(manifest, [{"end_to_end_s": 1.5}])]
    assert reading.gets == ["_summaries/r.json"]


@pytest.mark.parametrize("change", ["none", "older", "damaged"])
def test_summaries_that_are_not_of_the_manifest_come_from_the_commits(
    reading: Read, results: RunResults, change: str
) -> None:
    results.begin(CELL).commit({"end_to_end_s": 1.5})
    named = write_summaries(reading, "r")
    if change == "none":
        reading.delete("_summaries/r.json")
    elif change == "damaged":
        reading.put("_summaries/r.json", b"[")
    else:
        results.begin(CELL).commit({"end_to_end_s": 2.5})
        write_summaries(reading, "r")
    ((_, found),) = read_summaries(reading, [{"run_id": "r", **named}])
    assert found == [{"end_to_end_s": 2.5 if change == "older" else 1.5}]


def store_runs(store: FolderStore, count: int) -> None:
    """Runs of an hour, one after the other; each manifest is written at its run's end."""
    for i in range(count):
        write_manifest(store, f"run-{i}", {"started_at": (BEGAN + i * HOUR).isoformat(), "kind": i % 2})
        ended_s = (BEGAN + (i + 1) * HOUR).timestamp()
        os.utime(store.address(f"_manifests/run-{i}.json"), (ended_s, ended_s))


def test_the_latest_runs_are_found_without_reading_all(reading: Read) -> None:
    store_runs(reading, 60)
    found = latest_manifests(reading, 3, lambda manifest: True)
    assert {"run-59", "run-58", "run-57"} <= {each["run_id"] for each in found}
    assert len(reading.gets) <= 16
    reading.gets.clear()
    odd = latest_manifests(reading, 12, lambda manifest: manifest["kind"] == 1)
    assert {f"run-{i}" for i in range(37, 60, 2)} <= {each["run_id"] for each in odd}
    assert len(reading.gets) <= 32


def test_a_manifest_that_was_written_again_hides_no_later_run(reading: Read) -> None:
    store_runs(reading, 30)
    for i in range(20):
        os.utime(reading.address(f"_manifests/run-{i}.json"))
    found = latest_manifests(reading, 2, lambda manifest: True)
    assert {"run-29", "run-28"} <= {each["run_id"] for each in found}
