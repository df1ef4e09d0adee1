"""What people and programs hear when they ask for something wrong: one line each, from the real programs."""

import json
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.prefect_server import is_healthy
from tests.integration.hostile import signed
from tests.integration.operating import Operation, free_port, until
from tests.integration.test_servers import answering
from tests.integration.test_webhook import post

STUDY = "study/virtual-study"
EVERY_S = 60


def lines(operation: Operation, folder: Path) -> list[tuple[str, str]]:
    """What was wrong, and the line."""
    seed = {"cluster": "virtual:study", "seed": "one"}
    return [
        ("form, API: seed is a word", refused(operation, {"request": seed})),
        ("form, API: another cluster", refused(operation, {"request": {"cluster": "my-lab"}})),
        ("API: a parameter that the flow lacks", refused(operation, {"another": 1})),
        *scheduled(operation),
        *without_pool(operation),
        ("no server", said(operation, "run", "--profile", "smoke", PREFECT_API_URL="http://127.0.0.1:9/api")),
        ("server of another version", of_another_version(operation)),
        ("wrong key", with_wrong_key(operation, folder / "locked")),
        ("port of the server in use", port_in_use(operation, folder / "beside")),
        (
            "port of the receiver in use",
            said(
                operation, "serve", "--port", str(operation.hook_port), VIRTSCALE_WEBHOOK_SECRET="a" * 32
            ),
        ),
    ]  # fmt: skip


def refused(operation: Operation, parameters: dict[str, Any]) -> str:
    """What the server answers to that run."""
    study = operation.ask("GET", f"/deployments/name/{STUDY}")
    try:
        operation.ask("POST", f"/deployments/{study['id']}/create_flow_run", {"parameters": parameters})
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code} {line_of(json.load(error)['detail'])}"
    raise AssertionError(f"{parameters} were taken")


def scheduled(operation: Operation) -> Iterator[tuple[str, str]]:
    """A schedule with wrong parameters, which the server takes: what apply says, and how its run ends."""
    study = operation.ask("GET", f"/deployments/name/{STUDY}")
    path = f"/deployments/{study['id']}/schedules"
    parameters = {"request": {"cluster": "virtual:study", "seed": "one"}}
    body = {"active": True, "slug": "often", "schedule": {"interval": EVERY_S}, "parameters": parameters}
    (made,) = operation.ask("POST", path, [body])
    yield "schedule: seed is a word; apply", line_of(operation.virtscale("prefect", "apply").stdout)
    asked = {"deployments": {"id": {"any_": [study["id"]]}}, "sort": "EXPECTED_START_TIME_ASC"}

    def ended() -> list[dict[str, Any]]:
        found = operation.ask("POST", "/flow_runs/filter", asked)
        mine = [run for run in found if run["parameters"].get("request", {}).get("seed") == "one"]
        return [run for run in mine if run["state"]["type"] in {"FAILED", "CRASHED"}]

    run = until(ended, bool)[0]
    operation.ask("DELETE", f"{path}/{made['id']}")
    yield "schedule: its run", f"{run['state']['name']}: {line_of(run['state']['message'])}"


def without_pool(operation: Operation) -> Iterator[tuple[str, str]]:
    """A deployment that lost its work pool: what a webhook hears, and what apply does."""
    study = operation.ask("GET", f"/deployments/name/{STUDY}")
    operation.ask("PATCH", f"/deployments/{study['id']}", {"work_pool_name": None})
    secret = Path(operation.environment["VIRTSCALE_STATE"], "prefect", "webhook.secret").read_text().strip()
    status, answer = post(
        operation.hook_port, b"{}", signed(b"{}", f"poolless-{time.time_ns()}", secret=secret)
    )
    yield "deployment without a work pool; webhook", f"{status} {answer['error']}"
    assert status == 404
    yield "the same; apply", line_of(operation.virtscale("prefect", "apply").stdout)


def of_another_version(operation: Operation) -> str:
    """A server that says it is Prefect 2."""
    with answering(200, '"2.20.18"') as url:
        return said(operation, "prefect", "apply", PREFECT_API_URL=url)


def with_wrong_key(operation: Operation, home: Path) -> str:
    """A real server that wants another password."""
    with locked(home, operation.environment) as url:
        return said(operation, "prefect", "apply", PREFECT_API_URL=url, PREFECT_API_AUTH_STRING="ada:wrong")


@contextmanager
def locked(home: Path, environment: dict[str, str]) -> Iterator[str]:
    """A Prefect server with a password."""
    home.mkdir()
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    own = {
        "PREFECT_HOME": str(home),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / 'prefect.db'}",
        "PREFECT_SERVER_API_AUTH_STRING": "ada:right",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    app = "prefect.server.api.server:create_app"
    command = [sys.executable, "-m", "uvicorn", "--factory", app, "--host", "127.0.0.1", "--port", str(port)]
    with (
        (home / "server.log").open("wb") as log,
        subprocess.Popen(command, env=environment | own, stdout=log, stderr=log) as server,
    ):
        try:
            until(lambda: is_healthy(url), bool, 120)
            yield url
        finally:
            server.terminate()


def port_in_use(operation: Operation, state: Path) -> str:
    """`virtscale prefect up` of somebody else, on the port of this server."""
    environment = {name: value for name, value in operation.environment.items() if name != "PREFECT_API_URL"}
    port = operation.url.removesuffix("/api").rpartition(":")[2]
    other = operation._replace(environment=environment | {"VIRTSCALE_STATE": str(state)})
    return said(other, "prefect", "up", "--port", port, "--sqlite")


def said(operation: Operation, *command: str, **environment: str) -> str:
    """The one line with which a command is refused."""
    asked = operation._replace(environment={**operation.environment, **environment})
    refused = asked.virtscale(*command)
    assert refused.returncode == 2, refused
    *before, line = refused.stderr.splitlines()
    assert line.startswith("error: "), refused
    assert [each.split()[0] for each in before] in ([], ["run"]), before
    return f"`{line_of(line)}`"


def line_of(text: str) -> str:
    """One line that a table of Markdown holds, without places of this machine."""
    return " ".join(text.split()).replace("|", "\\|").replace(str(Path.home()), "~")
