"""Prefect in operation on one machine: database, server, worker, webhook receiver, in the background.

Each is found or started, so `up` mends what is missing. Nothing listens beyond loopback.
"""

import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from infra import background, postgres
from infra.background import Program
from infra.errors import VirtscaleError
from infra.prefect_server import (
    Server,
    client_environment,
    ensure_server,
    find_server,
    free_port,
    home,
    stop_server,
)

ROOT = Path(__file__).parents[1]
POOL = "virtscale"
START_LIMIT_S = 180.0
SECRET_FILE = "VIRTSCALE_WEBHOOK_SECRET_FILE"


class Ports(NamedTuple):
    """Where the server and the receiver listen."""

    server: int = 4200
    webhook: int = 4280


def worker() -> Program:
    """The process that starts a process for each run."""
    return Program(home(), "worker", ("worker", "start", POOL))


def receiver() -> Program:
    """The webhook receiver."""
    return Program(home(), "webhook", ("flows", "serve"))


def up_server(port: int, *, sqlite: bool) -> Server:
    """Server and database, running.

    Raises:
        VirtscaleError: one of them does not start, or the port is taken.
    """
    own = None if sqlite else postgres.find()
    found = find_server()
    if found is None:
        free_port(port)
    elif found.database == "SQLite":
        own = None
    if own is not None:
        postgres.up(own)
    return ensure_server(own.url if own else "", port)


def up_worker(server: Server) -> None:
    """A worker of the pool, which has to be there."""
    more = {
        "PREFECT_CLIENT_MAX_RETRIES": "10",
        "PREFECT_WORKER_QUERY_SECONDS": "2",
    }
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
    background.start(worker(), command, _environment(server) | more, ROOT)


def up_receiver(server: Server, port: int) -> None:
    """The receiver, answering; its secret is made where none is known.

    Raises:
        VirtscaleError: the port is taken, or it has ended or does not answer; with its last line.
    """
    if background.running(receiver()) is None:
        free_port(port)
    environment = _environment(server) | {SECRET_FILE: str(secret_file())}
    command = [sys.executable, "-m", "flows", "serve", "--port", str(port)]
    background.start(receiver(), command, environment, ROOT)
    deadline = time.monotonic() + START_LIMIT_S
    while not answers(port, "healthz"):
        background.require(receiver())
        if time.monotonic() > deadline:
            raise VirtscaleError(f"webhook receiver: no answer on port {port}; see {receiver().log}")
        time.sleep(0.2)


def secret_file() -> Path:
    """The file of the receiver's own secret, readable by its owner only; made once."""
    path = home() / "webhook.secret"
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    return path


def answers(port: int, page: str) -> bool:
    """Whether the receiver's page says ok."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=15) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def active_runs(server: Server) -> list[str]:
    """Names of the flow runs that are running; stopping the worker would end them."""
    asked = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "CANCELLING"]}}}}
    request = urllib.request.Request(
        f"{server.url}/flow_runs/filter", json.dumps(asked).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return [run["name"] for run in json.load(answer)]
    except (OSError, ValueError, urllib.error.URLError):
        return []


def down() -> Iterator[str]:
    """Stop everything, the worker first; yields what was stopped. Data stays."""
    for program in (receiver(), worker()):
        if background.stop(program):
            yield program.name
    if stop_server():
        yield "server"
    own = postgres.find()
    if own is not None and postgres.down(own):
        yield "PostgreSQL"


def _environment(server: Server) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | client_environment(server)
