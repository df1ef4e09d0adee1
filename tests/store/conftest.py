"""An S3 server in this process, and a bucket in it."""

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from infra.results.s3_client import connect
from infra.settings import s3

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
