"""The contract over a local folder."""

from pathlib import Path

import pytest

from infra.results.folder import open_folder
from tests.store.contract import MakeStore, ObjectStoreContract, ResultsContract


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    return lambda: open_folder(tmp_path / "store")


class TestObjects(ObjectStoreContract):
    pass


class TestResults(ResultsContract):
    rounds = 20
