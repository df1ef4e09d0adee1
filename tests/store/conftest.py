"""An S3 server in this process, and a bucket in it."""

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from infra.results import s3 as s3_store
from infra.results import sending
from infra.results.open import open_store
from infra.results.s3 import S3Store
from infra.results.s3_client import connect
from infra.settings import s3
from tests.store.fault_proxy import PASS, Proxy, always, proxy_to

ACCESS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """Its address."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def moto_bucket(moto_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh bucket; the environment leads to it."""
    state = {"VIRTSCALE_STATE": str(tmp_path / "state")}
    for name, value in {**ACCESS, **state, "AWS_ENDPOINT_URL": moto_server}.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{secrets.token_hex(4)}"
    connect(s3()).create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def broken_way(moto_server: str) -> Iterator[Proxy]:
    """One for all tests: each new address would cost a client."""
    with proxy_to(moto_server) as running:
        yield running


@pytest.fixture
def proxy(broken_way: Proxy, moto_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """Everything goes through it, unbroken at first."""
    broken_way.plan = always(PASS)
    broken_way.drop.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", broken_way.address)
    monkeypatch.setenv("VIRTSCALE_S3_TIMEOUT_S", "2")
    monkeypatch.setenv("VIRTSCALE_S3_AWAY_S", "2")
    monkeypatch.setattr(s3_store, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(sending, "FIRST_PAUSE_S", 0.05)
    return broken_way


@pytest.fixture
def store(proxy: Proxy, moto_bucket: str) -> S3Store:
    opened = open_store(f"s3://{moto_bucket}/p")
    assert isinstance(opened, S3Store)
    return opened
