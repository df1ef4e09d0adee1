"""The contract over an S3 server in this process."""

import secrets

import pytest

from infra.results.open import open_store
from infra.results.s3 import S3Store
from tests.store.contract import MakeStore, ObjectStoreContract, ResultsContract


@pytest.fixture
def make_store(moto_bucket: str) -> MakeStore:
    address = f"s3://{moto_bucket}/{secrets.token_hex(4)}"
    return lambda: open_store(address)


class TestObjects(ObjectStoreContract):
    rounds = 20
    many = 25

    @pytest.fixture(autouse=True)
    def _short_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(S3Store, "page_keys", 10)


class TestResults(ResultsContract):
    rounds = 2
    sizes = 3
