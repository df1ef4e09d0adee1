"""`virtscale run` through Prefect: the background server, the flow, its tasks."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infra import prefect_server
from infra.results.commits import read_commits
from infra.results.manifest import read_manifests
from infra.results.open import open_store

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

STAGES = "preflight,golden-image,deploy,boot,clean"
FLOW_ALONE = """
from flows.deploy import deploy
from flows.forms import DeployForm
deploy(DeployForm(profile="smoke", batches=(1,), store=STORE))
"""


class Finished(NamedTuple):
    """A run through Prefect, and the server that it left in the background."""

    state: Path
    server: prefect_server.Server
    store: Path
    command: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """The smoke run, with a server of its own that ends with these tests."""
    folder = tmp_path_factory.mktemp("prefect")
    with pytest.MonkeyPatch.context() as patch:
        state = folder / "state"
        patch.setenv("VIRTSCALE_STATE", str(state))
        patch.delenv("PREFECT_API_URL", raising=False)
        try:
            store = folder / "store"
            options = ("--profile", "smoke", "--stages", STAGES, "--run-id", "one", "--store", str(store))
            command = python("-m", "flows", "run", *options)
            server = prefect_server.find_server()
            assert server is not None, command.stderr
            yield Finished(state, server, store, command)
        finally:
            # Every test begins with an environment in which the state folder is not named.
            patch.setenv("VIRTSCALE_STATE", str(state))
            prefect_server.stop_server()


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *arguments], env=variables, capture_output=True, text=True, check=False
    )


def ask(server: prefect_server.Server, what: str, **query: Any) -> list[dict[str, Any]]:
    """Everything that the server's API says about one kind of thing."""
    request = urllib.request.Request(
        f"{server.url}/{what}/filter", json.dumps(query).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def task_names(server: prefect_server.Server, at_least: int) -> list[str]:
    """Names of all task runs in order; they reach the server a little after the flow has ended."""
    deadline = time.monotonic() + 30
    while True:
        names = [task["name"] for task in ask(server, "task_runs", sort="EXPECTED_START_TIME_ASC")]
        if len(names) >= at_least or time.monotonic() > deadline:
            return names
        time.sleep(0.2)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_prefect_adds_nothing_to_what_the_command_says(finished: Finished) -> None:
    lines = finished.command.stderr.splitlines()
    assert (finished.command.returncode, lines[0]) == (0, "run one")
    assert [line.split()[0] for line in lines[1:]] == [
        "prefect",
        "smoke",
        "preflight",
        "golden",
        *["deploy"] * 3,
        *["boot"] * 3,
        "clean",
    ]


def test_the_flow_has_one_task_per_step_named_as_the_procedure_reads(finished: Finished) -> None:
    flows = ask(finished.server, "flow_runs")
    assert [(run["name"], run["state"]["type"]) for run in flows] == [
        ("study one virtual:study", "COMPLETED")
    ]
    assert set(flows[0]["tags"]) == {"virtscale", "virtual", "virtual:study", "smoke"}
    boots, deploys = ["boot 1", "boot 2", "boot 4"], ["deploy 1", "deploy 2", "deploy 4"]
    expected = ["preflight", "golden image", *deploys, *boots, "clean"]
    assert task_names(finished.server, len(expected)) == expected


def test_a_flow_without_a_run_id_uses_its_own(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTSCALE_STATE", str(finished.state))
    store = finished.store.with_name("alone")
    environment = prefect_server.client_environment(finished.server)
    done = python("-c", FLOW_ALONE.replace("STORE", repr(str(store))), **environment)
    assert done.returncode == 0, done.stderr
    (run_id,) = read_manifests(open_store(str(store)))
    assert run_id in {run["id"] for run in ask(finished.server, "flow_runs")}
    stages = [commit.cell.stage for commit in read_commits(open_store(str(store)), run_id) if commit.complete]
    assert [stage for stage in stages if stage in {"deploy", "boot"}] == ["deploy"]


def test_the_server_is_found_again_and_stopped(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTSCALE_STATE", str(finished.state))
    assert prefect_server.ensure_server() == finished.server
    assert prefect_server.stop_server()
    assert not is_running(finished.server.pid)
    assert prefect_server.find_server() is None
    assert not prefect_server.stop_server()


def test_a_record_of_another_program_is_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path))
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "server.json").write_text(f'{{"pid": {os.getpid()}, "port": 9}}')
    assert prefect_server.find_server() is None
    assert not prefect_server.stop_server()
    assert is_running(os.getpid())
