"""A testbed of the test session's own, and namespaces on it."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.testbed import apply, servers
from infra.testbed.state import State
from tests.real.controlling import controlled_by_virtual_controllers


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    folder: Path = tmp_path_factory.mktemp("testbed")
    state = servers.up(folder)
    try:
        yield state
    finally:
        servers.down(folder)
        servers.forget(folder)


@pytest.fixture
def namespace(testbed: State) -> str:
    """A fresh namespace; it goes with the testbed."""
    name = f"test-{secrets.token_hex(4)}"
    apply.apply(testbed, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    return name


@pytest.fixture(scope="module")
def controlled(testbed: State, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """The testbed with the virtual controllers at work on it, in a process of their own."""
    with controlled_by_virtual_controllers(testbed, tmp_path_factory.mktemp("controllers") / "log") as state:
        yield state
