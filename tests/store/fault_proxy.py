"""A proxy before an S3 server that breaks what it is told to break, request by request."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    """An answer of the proxy's own, as S3 writes it."""

    status: int
    code: str


Fault = Literal["pass", "lose", "reset", "hang"] | Answer
PASS: Fault = "pass"
"""Forward."""
LOSE: Fault = "lose"
"""Forward, and break off without an answer."""
RESET: Fault = "reset"
"""Break off without forwarding."""
HANG: Fault = "hang"
"""Neither forward nor answer."""
Plan = Callable[[str, str], Fault]
"""What happens to a request, by method and path."""


@dataclass
class Proxy:
    """A running proxy; `plan` may be changed at any time. `drop` are headers that do not get through."""

    address: str
    plan: Plan
    drop: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)


def always(fault: Fault) -> Plan:
    """The same for every request."""
    return lambda method, path: fault


def first(faults: list[Fault], method: str = "PUT") -> Plan:
    """One fault for each request of a method, then none."""
    left = list(faults)
    return lambda asked, path: left.pop(0) if asked == method and left else PASS


@contextmanager
def proxy_to(server: str) -> Iterator[Proxy]:
    """A proxy on a free loopback port."""
    proxy = Proxy("", always(PASS))
    backend = urlsplit(server).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.close_connection = True
            self.raw_requestline = self.rfile.readline(65537)
            if self.raw_requestline and self.parse_request():
                answer(self, proxy, backend)

        def log_message(self, *_: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    proxy.address = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.ended.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


def answer(handler: BaseHTTPRequestHandler, proxy: Proxy, backend: str) -> None:
    """Do with one request what the plan says."""
    if "100-continue" in handler.headers.get("Expect", ""):
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    proxy.seen.append(handler.command)
    fault = proxy.plan(handler.command, handler.path)
    if isinstance(fault, Answer):
        text = f"<Error><Code>{fault.code}</Code><Message>as told</Message></Error>".encode()
        _reply(handler, fault.status, [("Content-Type", "application/xml")], text)
    elif fault == HANG:
        proxy.ended.wait(30)
    elif fault != RESET:
        status, headers, text = _forward(handler, proxy, backend, body)
        if fault == PASS:
            _reply(handler, status, headers, text)


def _forward(
    handler: BaseHTTPRequestHandler, proxy: Proxy, backend: str, body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    hidden = {"expect", "connection", *proxy.drop}
    headers = {name: value for name, value in handler.headers.items() if name.lower() not in hidden}
    connection = http.client.HTTPConnection(backend, timeout=30)
    try:
        connection.request(handler.command, handler.path, body, headers)
        found = connection.getresponse()
        return found.status, found.getheaders(), found.read()
    finally:
        connection.close()


def _reply(handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    handler.send_response_only(status)
    for name, value in headers:
        if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
            handler.send_header(name, value)
    length = {name.lower(): value for name, value in headers}.get("content-length", str(len(body)))
    handler.send_header("Content-Length", length if handler.command == "HEAD" else str(len(body)))
    handler.send_header("Connection", "close")
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
