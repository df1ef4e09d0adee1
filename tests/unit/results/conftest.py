"""A store in a folder of the test's own, and results in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.results.folder import FolderStore, open_folder
from infra.results.run_results import RunResults, open_results
from tasks.records import TABLES


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return open_folder(tmp_path / "store")


@pytest.fixture
def opened(store: FolderStore) -> Iterator[Callable[..., RunResults]]:
    """Opens results of run `r` as a process of its own would; all are closed at the end."""
    results: list[RunResults] = []

    def open_again(spool: str = "_spool/r", store_: FolderStore = store) -> RunResults:
        results.append(open_results(store_, "r", "virtual", TABLES, store_.root / spool))
        return results[-1]

    yield open_again
    for each in results:
        each.close()


@pytest.fixture
def results(opened: Callable[..., RunResults]) -> RunResults:
    return opened()
