"""One background Prefect server per user: found or started, shown, stopped; Prefect is not imported.

The state folder holds the server's record (pid, port, address), its database and its log. The
server outlives the command that started it, listens on loopback only and reports to nobody.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from infra.errors import VirtscaleError
from infra.settings import state_dir

HEARTBEAT_S = "30"
"""As often as Prefect allows; the automation that marks dead runs waits for more than six of them."""
START_LIMIT_S = 300.0
STOP_LIMIT_S = 15.0
_APP = "flows.prefect_app:create_app"
_APPS = (_APP, "prefect.server.api.server:create_app")
"""Ours, and that of a server which an earlier version of virtscale started."""
_LEASES = "prefect.server.concurrency.lease_storage.filesystem"


class PortTaken(VirtscaleError):
    """Nothing can listen there; nothing was started."""

    exit_code = 2


class Server(NamedTuple):
    """A running server; `url` is what PREFECT_API_URL has to be."""

    pid: int
    port: int
    database: str = "SQLite"

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def ui(self) -> str:
        """The address of its pages."""
        return f"http://127.0.0.1:{self.port}"


def home() -> Path:
    """The folder of the server: record, database, log, results of tasks."""
    return state_dir() / "prefect"


def client_environment(server: Server) -> dict[str, str]:
    """What a process needs to use the server: its address, and a console without Prefect's own log lines."""
    return {
        "PREFECT_API_URL": server.url,
        "PREFECT_HOME": str(home()),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": HEARTBEAT_S,
        "DO_NOT_TRACK": "1",
    }


def find_server() -> Server | None:
    """The server of this user when it answers; None when there is none, or only its record is left."""
    record = _record()
    if record is None or not _is_ours(record.pid) or not is_healthy(record.url):
        return None
    return record


def ensure_server(database: str = "", port: int = 0) -> Server:
    """Find the server of this user, or start it and wait until it answers.

    A new one uses `database`, else SQLite in its folder, and listens on `port`, else a free one.

    Raises:
        VirtscaleError: the port is in use, or it does not answer within five minutes; the text names its log.
    """
    home().mkdir(parents=True, exist_ok=True)
    with _alone():
        return find_server() or _start(database, port)


def stop_server() -> bool:
    """Stop the server of this user; False when none was running."""
    home().mkdir(parents=True, exist_ok=True)
    with _alone():
        record = _record()
        (home() / "server.json").unlink(missing_ok=True)
        if record is None or not _is_ours(record.pid):
            return False
        _stop(record.pid)
        return True


def is_healthy(url: str, limit_s: float = 5.0) -> bool:
    """Whether the API at `url` answers its health check."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=limit_s) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def free_port(asked: int, host: str = "127.0.0.1") -> int:
    """The port that is asked for, 0: any.

    Raises:
        PortTaken: another program listens on it, or the host is not this one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, asked))
        except OSError as error:
            raise PortTaken(f"port {asked} of {host}: {error.strerror}; choose another one") from None
        return int(probe.getsockname()[1])


@contextmanager
def _alone() -> Iterator[None]:
    """Two commands that begin at the same time must not start two servers."""
    with (home() / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _record() -> Server | None:
    try:
        record = json.loads((home() / "server.json").read_text())
        return Server(record["pid"], record["port"], record.get("database", "SQLite"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_ours(pid: int) -> bool:
    """Whether the process still is a Prefect server: its number may have been given to another program."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    command = Path(f"/proc/{pid}/cmdline")
    return not command.exists() or any(app.encode() in command.read_bytes() for app in _APPS)


def _start(database: str, asked_port: int) -> Server:
    port = free_port(asked_port)
    with (home() / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--factory", _APP, "--host", "127.0.0.1", "--port", str(port)],
            env=_environment(port, database),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    server = Server(process.pid, port, "PostgreSQL" if database else "SQLite")
    (home() / "server.json").write_text(json.dumps(server._asdict()))
    _wait_until_healthy(server, process)
    # It outlives this command, so nobody here waits for its end.
    process.returncode = 0
    return server


def _environment(port: int, database: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {
        "PREFECT_HOME": str(home()),
        "PREFECT_API_DATABASE_CONNECTION_URL": database or f"sqlite+aiosqlite:///{home() / 'prefect.db'}",
        "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _LEASES,
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "10",
        # Each run that waits for a worker is marked late; five seconds' worth of them at once delays answers.
        "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "1",
        # A cancelled run is cleaned up in a hook, which may take longer than Prefect's five minutes.
        "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_CANCELLING_TIMEOUT_SECONDS": "1800",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "DO_NOT_TRACK": "1",
    }


def _wait_until_healthy(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not is_healthy(server.url, 1.0):
        if process.poll() is not None or time.monotonic() > deadline:
            if process.poll() is None:
                _stop(process.pid)
            (home() / "server.json").unlink(missing_ok=True)
            raise VirtscaleError(
                f"Prefect server: did not start; see {home() / 'server.log'}, or run with --no-prefect"
            )
        time.sleep(0.2)


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_LIMIT_S
    while _is_alive(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.1)


def _is_alive(pid: int) -> bool:
    try:
        # A server that this very process started has to be reaped, or it stays "alive" as a zombie.
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
