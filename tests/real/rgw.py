"""A gateway of the test session's own, buckets in it, and the contract over it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from infra.results.s3_client import connect
from infra.rgw import daemons, packages
from infra.rgw.configuration import Gateway
from infra.settings import s3


@contextmanager
def running(*, tls: bool = False) -> Iterator[Gateway]:
    """A gateway for the length of the block."""
    if missing := packages.missing():
        pytest.skip(f"{', '.join(missing)} missing: make test-rgw installs them")
    # Not pytest's own folder: a socket's path may have 107 bytes.
    with TemporaryDirectory(prefix="rgw-") as name:
        up = daemons.up(Gateway(Path(name) / "g", 0, tls=tls))
        try:
            yield up
        finally:
            daemons.down(up.folder, wipe=True)


@pytest.fixture(scope="session")
def gateway() -> Iterator[Gateway]:
    with running() as up:
        yield up


@pytest.fixture
def bucket(gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return fresh_bucket(gateway, tmp_path, monkeypatch)


def fresh_bucket(gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of its own; the environment leads to it, the CA included."""
    for name, value in {**gateway.environment(), "VIRTSCALE_STATE": str(tmp_path / "state")}.items():
        monkeypatch.setenv(name, value)
    made = f"bucket-{secrets.token_hex(4)}"
    # After a gateway was killed the next one waits half a minute for its answer, once.
    connect(replace(s3(), timeout_s=120)).create_bucket(Bucket=made)
    return made
