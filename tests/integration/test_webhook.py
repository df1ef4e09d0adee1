"""The webhook receiver as a process, before a real Prefect server: what starts, and what must not."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infra import prefect_server
from tests.integration.alertmanager import ALERTMANAGER, alert, alerting
from tests.integration.hostile import (
    GITHUB,
    GOOD,
    SECRET,
    TOKEN,
    Hostile,
    github_signature,
    hostiles,
    send,
    signed,
)
from tests.integration.hostile_events import (
    ALERTMANAGER_TOKEN,
    EVENTS,
    GITLAB_TOKEN,
    KNOWN,
    ORIGINALS,
    SIGNING_KEY,
)

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

RULES = """
[hooks.study]
deployment = "study/virtual-study"
[hooks.study.parameters]
profile = ["smoke", "small"]
seed = true
run_id = true
stages = true
[hooks.gone]
deployment = "study/nowhere"
[hooks.tuning]
deployment = "tuning/virtual-study"
[limits]
body_s = 1.0
prefect_s = 8.0
requests_per_s = 10000.0
burst = 100000
failures_per_s = 10000.0
failures_burst = 100000
"""
SECRETS = {
    "VIRTSCALE_WEBHOOK_SECRET": SECRET,
    "VIRTSCALE_WEBHOOK_GITHUB_SECRET": GITHUB,
    "VIRTSCALE_WEBHOOK_TOKEN": TOKEN,
    "VIRTSCALE_WEBHOOK_GITLAB_TOKEN": GITLAB_TOKEN,
    "VIRTSCALE_WEBHOOK_GITLAB_SIGNING_TOKEN": f"whsec_{base64.b64encode(SIGNING_KEY).decode()}",
    "VIRTSCALE_WEBHOOK_ALERTMANAGER_TOKEN": ALERTMANAGER_TOKEN,
}
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "webhooks.md"
HOSTILE = int(os.environ.get("VIRTSCALE_TEST_HOSTILE", "300"))


class Receiver(NamedTuple):
    """A receiver, its server and its log."""

    port: int
    server: prefect_server.Server
    log: Path
    process: subprocess.Popen[bytes]
    rules: Path
    environment: dict[str, str]


def shown(language: str, section: str = "") -> str:
    """What the guide shows in blocks of that language, of one section or of all."""
    text = GUIDE.read_text()
    text = text.partition(f"## {section}\n")[2].partition("\n## ")[0] if section else text
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    folder = tmp_path_factory.mktemp("webhook")
    rules = folder / "rules.toml"
    rules.write_text(RULES + shown("toml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTSCALE_STATE", str(folder / "state"))
        patch.delenv("PREFECT_API_URL", raising=False)
        server = prefect_server.ensure_server()
        environment = {**os.environ, **prefect_server.client_environment(server), **SECRETS}
        try:
            apply = [sys.executable, "-m", "flows", "prefect", "apply", "--store", str(folder / "store")]
            subprocess.run(apply, env=environment, check=True, capture_output=True)
            with serving(folder, rules, environment) as (process, port):
                yield Receiver(port, server, folder / "serve.log", process, rules, environment)
        finally:
            patch.setenv("VIRTSCALE_STATE", str(folder / "state"))
            prefect_server.stop_server()


class serving:
    """A receiver for the length of a block."""

    def __init__(self, folder: Path, rules: Path, environment: dict[str, str]) -> None:
        self._port = free_port()
        command = [sys.executable, "-m", "flows", "serve", "--port", str(self._port), "--rules", str(rules)]
        with (folder / "serve.log").open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._log = folder / "serve.log"

    def __enter__(self) -> tuple[subprocess.Popen[bytes], int]:
        deadline = time.monotonic() + 180
        while get(self._port, "healthz")[0] != 200:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)
        return self._process, self._port

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)


def get(port: int, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def post(port: int, body: bytes, headers: list[str], hook: str = "study") -> tuple[int, dict[str, Any]]:
    fields = dict(header.split(": ", 1) for header in headers)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/hooks/{hook}", body, fields, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def asked(server: prefect_server.Server, method: str, path: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    fields = {"content-type": "application/json"}
    request = urllib.request.Request(server.url + path, content, fields, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"null")


def count_of_runs(server: prefect_server.Server) -> int:
    # Runs of a schedule that is off are not there, so every run is a webhook's.
    return len(asked(server, "POST", "/flow_runs/filter", {}))


def body_of(**parameters: Any) -> bytes:
    return json.dumps({"parameters": {"profile": "smoke", **parameters}}).encode()


def test_hostile_requests_start_nothing_and_get_the_right_answer(receiver: Receiver) -> None:
    before = count_of_runs(receiver.server)
    originals = [send(receiver.port, Hostile("original", content, KNOWN)) for content in ORIGINALS]
    assert originals == [202] * len(ORIGINALS)
    before += len(ORIGINALS)
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda each: (each, send(receiver.port, each)), hostiles(HOSTILE, EVENTS)))
    wrong = [(each.kind, status, each.content[:300]) for each, status in sent if status not in each.right]
    assert wrong == [], Counter((kind, status) for kind, status, _ in wrong)
    assert len({each.kind for each, _ in sent}) >= 24
    assert count_of_runs(receiver.server) == before
    assert receiver.process.poll() is None


def test_fifty_deliveries_of_one_id_start_one_run(receiver: Receiver) -> None:
    before = count_of_runs(receiver.server)
    body = body_of(seed=50)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: post(receiver.port, body, signed(body, "fifty")), range(50)))
    statuses = Counter(status for status, _ in answers)
    assert set(statuses) <= {202, 503}, answers
    assert statuses[202] >= 1
    assert len({answer["run_id"] for status, answer in answers if status == 202}) == 1
    assert count_of_runs(receiver.server) == before + 1


def test_a_delivery_id_with_other_parameters_is_a_conflict(receiver: Receiver) -> None:
    first, second = body_of(seed=2), body_of(seed=3)
    assert post(receiver.port, first, signed(first, "twice"))[0] == 202
    status, answer = post(receiver.port, second, signed(second, "twice"))
    assert (status, answer["error"]) == (409, "the delivery id was used before, for another request")


def test_a_signature_replayed_under_another_id_is_a_conflict(receiver: Receiver) -> None:
    body = body_of(seed=4)
    headers = signed(body, "first")
    assert post(receiver.port, body, headers)[0] == 202
    before = count_of_runs(receiver.server)
    assert post(receiver.port, body, [*headers[:2], "X-Virtscale-Delivery: second"])[0] == 409
    assert count_of_runs(receiver.server) == before


def test_a_dry_run_checks_everything_and_starts_nothing(receiver: Receiver) -> None:
    before = count_of_runs(receiver.server)
    body = json.dumps({"parameters": {"profile": "smoke", "seed": 5}, "dry_run": True}).encode()
    status, answer = post(receiver.port, body, signed(body, "dry"))
    assert status == 200
    assert answer["parameters"] | {"store": ""} == {
        "cluster": "virtual:study", "store": "", "profile": "smoke", "seed": 5,
    }  # fmt: skip
    assert count_of_runs(receiver.server) == before


def test_what_is_wrong_is_said_with_its_path(receiver: Receiver) -> None:
    body = body_of(stages=["preflight", "everything"])
    status, answer = post(receiver.port, body, signed(body, "path"))
    assert status == 400
    assert answer["error"].startswith("parameters.stages.1: Input should be 'preflight'")


def test_a_deployment_that_prefect_lacks_is_not_found(receiver: Receiver) -> None:
    status, answer = post(receiver.port, b"{}", signed(b"{}", "gone"), "gone")
    assert (status, answer["error"]) == (404, "Prefect has no such deployment (virtscale prefect apply)")


def test_a_deployment_without_a_work_pool_is_told(receiver: Receiver) -> None:
    """As it is left when its pool is deleted; applying again mends it."""
    found = asked(receiver.server, "GET", "/deployments/name/tuning/virtual-study")
    asked(receiver.server, "PATCH", f"/deployments/{found['id']}", {"work_pool_name": None})
    body = b'{"dry_run": false}'
    status, answer = post(receiver.port, body, signed(body, "poolless"), "tuning")
    assert (status, answer["error"]) == (
        404,
        "tuning/virtual-study has no work pool: no run would start (virtscale prefect apply)",
    )


def test_github_starts_one_run_per_body_whatever_its_delivery_says(receiver: Receiver) -> None:
    body = json.dumps({"action": "nightly", "client_payload": {"profile": "smoke", "seed": 6}}).encode()
    headers = [f"X-Hub-Signature-256: {github_signature(body)}", "X-GitHub-Event: repository_dispatch"]
    before = count_of_runs(receiver.server)
    runs = {
        post(receiver.port, body, [*headers, f"X-GitHub-Delivery: {number}"])[1]["run_id"]
        for number in range(3)
    }
    assert len(runs) == 1
    assert count_of_runs(receiver.server) == before + 1
    ping = [f"X-Hub-Signature-256: {github_signature(GOOD)}", "X-GitHub-Event: ping", "X-GitHub-Delivery: p"]
    assert post(receiver.port, GOOD, ping) == (200, {"pong": True})


def test_a_token_starts_a_run(receiver: Receiver) -> None:
    headers = [f"Authorization: Bearer {TOKEN}", "X-Virtscale-Delivery: token-1"]
    status, answer = post(receiver.port, body_of(seed=7), headers)
    assert status == 202
    assert answer["url"].endswith(answer["run_id"])


@pytest.mark.parametrize("section", ["curl", "GitHub", "GitLab", "GitLab, signed", "Alertmanager"])
def test_the_commands_of_the_guide_start_one_run(receiver: Receiver, tmp_path: Path, section: str) -> None:
    before = count_of_runs(receiver.server)
    told = {"WEBHOOK": f"http://127.0.0.1:{receiver.port}", "DELIVERY": f"guide-{section.replace(', ', '-')}"}
    for name, secret in SECRETS.items():
        (tmp_path / name).write_text(secret + "\n")
        told[name.removeprefix("VIRTSCALE_WEBHOOK_") + "_FILE"] = str(tmp_path / name)
    shell = ["bash", "-euc", shown("bash", section)]
    runs = set()
    for _ in range(2):
        done = subprocess.run(shell, env={**os.environ, **told}, capture_output=True, check=True)
        answer = json.loads(done.stdout)
        assert set(answer) == {"run_id", "name", "url", "delivery"}, answer
        runs.add(answer["run_id"])
    assert len(runs) == 1
    assert count_of_runs(receiver.server) == before + 1


@pytest.mark.skipif(not ALERTMANAGER, reason="no Alertmanager here (Debian: prometheus-alertmanager)")
def test_a_real_alertmanager_with_the_guide_s_configuration_starts_one_run(
    receiver: Receiver, tmp_path: Path
) -> None:
    before, seen = count_of_runs(receiver.server), len(deliveries(receiver))
    config = shown("yaml", "Alertmanager").replace(":4280/", f":{receiver.port}/")
    (tmp_path / "alertmanager.token").write_text(ALERTMANAGER_TOKEN + "\n")
    with alerting(tmp_path, config, free_port()) as port:
        alert(port)
        sent = waited_for(receiver, seen, lambda lines: len(lines) >= 3)
        assert {line["status"] for line in sent} == {202}
        assert len({line["run_id"] for line in sent}) == 1
        alert(port, ended=True)
        *_, last = waited_for(receiver, seen, lambda lines: lines[-1]["status"] == 200)
        assert last["reason"] == "the alerts are resolved"
    assert count_of_runs(receiver.server) == before + 1


def deliveries(receiver: Receiver) -> list[dict[str, Any]]:
    """The lines of the log that are Alertmanager's."""
    lines = [json.loads(line) for line in receiver.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("form") == "alertmanager"]


def waited_for(receiver: Receiver, seen: int, right: Callable[[Any], bool]) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 60
    while not right(found := deliveries(receiver)[seen:] or [{"status": 0}]):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    return found


def test_the_log_has_one_line_per_request_and_no_secret(receiver: Receiver) -> None:
    text = receiver.log.read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert lines
    assert all({"at", "event", "status", "elapsed_ms"} <= set(line) for line in lines)
    assert [secret for secret in SECRETS.values() if secret in text] == []
    assert "Traceback" not in text


def test_health_readiness_and_metrics_are_open(receiver: Receiver) -> None:
    assert get(receiver.port, "healthz") == (200, "ok\n")
    assert get(receiver.port, "readyz") == (200, "ok\n")
    assert "virtscale_webhook_requests_total" in get(receiver.port, "metrics")[1]


def test_prefect_away_is_503_and_the_same_delivery_starts_one_run_later(receiver: Receiver) -> None:
    """The server is stopped with a signal for a while, as when it hangs."""
    before = count_of_runs(receiver.server)
    body = body_of(seed=8)
    os.kill(receiver.server.pid, signal.SIGSTOP)
    try:
        status, answer = post(receiver.port, body, signed(body, "away"))
        assert get(receiver.port, "readyz")[0] == 503
    finally:
        os.kill(receiver.server.pid, signal.SIGCONT)
    assert (status, answer["error"]) == (503, "Prefect does not answer; send the same delivery again")
    again = [post(receiver.port, body, signed(body, "away")) for _ in range(2)]
    assert [status for status, _ in again] == [202, 202]
    assert count_of_runs(receiver.server) == before + 1


def test_killed_between_accepting_and_creating_the_same_delivery_starts_one_run(
    receiver: Receiver, tmp_path: Path
) -> None:
    before = count_of_runs(receiver.server)
    body = body_of(seed=9)
    with ThreadPoolExecutor(1) as pool:
        with serving(tmp_path, receiver.rules, receiver.environment) as (process, port):
            os.kill(receiver.server.pid, signal.SIGSTOP)
            try:
                sent = pool.submit(post, port, body, signed(body, "killed"))
                # accepted, and waiting for a Prefect that hangs
                time.sleep(1)
                process.kill()
                with pytest.raises(OSError, match="onnection"):
                    sent.result()
            finally:
                os.kill(receiver.server.pid, signal.SIGCONT)
        with serving(tmp_path, receiver.rules, receiver.environment) as (_, port):
            assert post(port, body, signed(body, "killed"))[0] == 202
    assert count_of_runs(receiver.server) == before + 1


def test_without_a_secret_it_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flows", "serve"]
    environment = {**os.environ, "VIRTSCALE_STATE": str(tmp_path)}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: serve: no secret; set VIRTSCALE_WEBHOOK_SECRET_FILE")
