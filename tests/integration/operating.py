"""Prefect in operation for tests: what `virtscale prefect up` starts, and how people use it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from infra import postgres, prefect_server

SERVED = "virtscale-served"
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Operation(NamedTuple):
    """What `virtscale prefect up` started, and what it said."""

    url: str
    folder: Path
    environment: dict[str, str]
    said: str
    hook_port: int

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request to Prefect's API."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, content, {"content-type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def virtscale(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command."""
        command = [sys.executable, "-m", "flows", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def start(self, deployment: str, **request: Any) -> str:
        """Start a run as the UI does; returns its id."""
        found = self.ask("GET", f"/deployments/name/{quote(deployment)}")
        cluster = SERVED if deployment.endswith(f"/{SERVED}") else "virtual:study"
        asked = {"cluster": cluster, "profile": "smoke", "store": str(self.folder / "store")}
        body = {"parameters": {"request": asked | request}}
        return str(self.ask("POST", f"/deployments/{found['id']}/create_flow_run", body)["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        """The flow run."""
        found: dict[str, Any] = self.ask("GET", f"/flow_runs/{run_id}")
        return found

    def ended(self, run_id: str) -> str:
        """The state in which the run ends."""
        return str(until(lambda: self.run(run_id)["state"]["type"], lambda state: state in ENDED))

    def reaches(self, run_id: str, name: str) -> dict[str, Any]:
        """The state of that name, once the run is in it."""
        found: dict[str, Any] = until(
            lambda: self.run(run_id)["state"],
            lambda state: state["name"] == name or state["type"] in ENDED,
        )
        assert found["name"] == name, found["message"]
        return found

    def tasks(self, run_id: str, at_least: int) -> list[tuple[str, str]]:
        """Names and states of its task runs in order; they reach the server a little later."""
        asked = {"sort": "EXPECTED_START_TIME_ASC", "flow_runs": {"id": {"any_": [run_id]}}}
        found = until(
            lambda: [
                (task["name"], task["state"]["name"]) for task in self.ask("POST", "/task_runs/filter", asked)
            ],
            lambda tasks: (
                len(tasks) >= at_least and not {"Running", "Pending"} & {state for _, state in tasks}
            ),
        )
        return list(found)


def until(look: Callable[[], Any], right: Callable[[Any], bool], limit_s: float = 400) -> Any:
    deadline = time.monotonic() + limit_s
    while not right(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def operating(folder: Path) -> Iterator[Operation]:
    """Database, server, worker and receiver for the length of the block; `folder` holds everything."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"VIRTSCALE_STATE": str(folder / "state"), "KUBECONFIG": str(folder / "kubeconfig")}
    port, hook = free_port(), free_port()
    made = Operation(f"http://127.0.0.1:{port}/api", folder, environment, "", hook)
    try:
        up = made.virtscale("prefect", "up", "--port", str(port), "--webhook-port", str(hook))
        assert up.returncode == 0, up.stderr
        client = prefect_server.Server(0, port)
        yield made._replace(said=up.stdout, environment=environment | {"PREFECT_API_URL": client.url})
    finally:
        made.virtscale("prefect", "down", "--yes")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VIRTSCALE_STATE", str(folder / "state"))
            if own := postgres.find():
                postgres.wipe(own)


@contextmanager
def serving(operation: Operation) -> Iterator[None]:
    """The served cluster that the worker's runs find, with a set of deployments."""
    kubeconfig = operation.environment["KUBECONFIG"]
    command = [sys.executable, "-m", "flows", "cluster", "serve", "--kubeconfig", kubeconfig, "--nodes", "5"]
    with subprocess.Popen(
        command, env=operation.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline().startswith("export KUBECONFIG=")
            applied = operation.virtscale("prefect", "apply", "--cluster", SERVED)
            assert applied.returncode == 0, applied.stderr
            yield
        finally:
            server.terminate()
