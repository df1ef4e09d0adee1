"""Prefect servers that cannot be used are refused in one line, which says what to do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.errors import VirtscaleError

pytestmark = [pytest.mark.prefect, pytest.mark.slow]


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """The address of an API that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refusal_of(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `connect` says of that server; Prefect has read its settings here, so it is told again."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.prefect_client import connect

    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(VirtscaleError) as refused:
        connect()
    assert refused.value.exit_code == 2
    text = str(refused.value)
    assert text.startswith(f"PREFECT_API_URL={url}: ")
    return text.removeprefix(f"PREFECT_API_URL={url}: ")


@pytest.mark.parametrize("version", ["2.20.18", "3.8.2", "4.0.0"])
def test_another_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, json.dumps(version)) as url:
        said = refusal_of(url, monkeypatch)
    assert said == (
        f"Prefect {version}, but virtscale needs 3.9 or a later 3;"
        " stop it and start that, or use --no-prefect"
    )


@pytest.mark.parametrize("version", ["3.9.1", "3.12.0rc1"])
def test_a_server_that_is_as_new_is_used(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.prefect_client import connect

    with answering(200, json.dumps(version)) as url, temporary_settings({PREFECT_API_URL: url}):
        monkeypatch.setenv("PREFECT_API_URL", url)
        assert connect() == url


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, "{}", "answers 401; set PREFECT_API_AUTH_STRING, or PREFECT_API_KEY, as it is there"),
        (404, "{}", "no Prefect API; its address ends with /api"),
        (200, "<html>", "no Prefect API; its address ends with /api"),
        (500, "{}", "answers 500; see its log, or use --no-prefect"),
    ],
)
def test_a_wrong_key_and_another_program_are_told(
    status: int, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(status, body) as url:
        assert refusal_of(url, monkeypatch) == said


def test_a_server_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal_of("http://127.0.0.1:9/api", monkeypatch)
    assert said == "no answer; start it, unset it, or use --no-prefect"
