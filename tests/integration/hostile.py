"""Requests that must start nothing, as bytes on a socket: seeded, so that a run can be repeated."""

import hashlib
import hmac
import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

SECRET, GITHUB, TOKEN = "signing-secret-of-a-test", "github-secret-of-a-test", "bearer-token-of-a-test"
GOOD = b'{"parameters": {"profile": "smoke"}}'
TOO_LARGE = 20 * 1024 * 1024
REFUSED = frozenset({400, 409})
"""409: the same body was signed in the same second for another delivery."""


class Hostile(NamedTuple):
    """A request: why it is one, its bytes, the answers that are right."""

    kind: str
    content: bytes
    right: frozenset[int]


def signature(body: bytes, stamp: int | str, secret: str = SECRET) -> str:
    content = f"{stamp}.".encode() + body
    return "sha256=" + hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def github_signature(body: bytes, secret: str = GITHUB) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def signed(body: bytes, delivery: str, stamp: int | str | None = None, secret: str = SECRET) -> list[str]:
    at = int(time.time()) if stamp is None else stamp
    return [
        f"X-Virtscale-Timestamp: {at}",
        f"X-Virtscale-Signature: {signature(body, at, secret)}",
        f"X-Virtscale-Delivery: {delivery}",
    ]


def request(
    body: bytes,
    headers: list[str],
    path: str = "/hooks/study",
    method: str = "POST",
    length: int | None = None,
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def send(port: int, hostile: Hostile) -> int:
    """The status of the answer; 0 when the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(hostile.content)
            answer = connection.recv(4096)
        except (ConnectionError, BrokenPipeError):
            return 0
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def _id(draw: random.Random) -> str:
    return f"hostile-{draw.getrandbits(64):x}"


def unsigned(draw: random.Random) -> Hostile:
    return Hostile("unsigned", request(GOOD, [f"X-Virtscale-Delivery: {_id(draw)}"]), frozenset({401}))


def wrong_secret(draw: random.Random) -> Hostile:
    headers = signed(GOOD, _id(draw), secret=f"guess-{draw.getrandbits(64)}")
    return Hostile("wrong secret", request(GOOD, headers), frozenset({401}))


def off_by_one_byte(draw: random.Random) -> Hostile:
    body = bytearray(GOOD)
    body[draw.randrange(len(body))] ^= 1 << draw.randrange(7)
    return Hostile("off by one byte", request(bytes(body), signed(GOOD, _id(draw))), frozenset({401}))


def damaged_signature(draw: random.Random) -> Hostile:
    headers = signed(GOOD, _id(draw))
    text = headers[1]
    at = draw.randrange(len("X-Virtscale-Signature: "), len(text))
    headers[1] = text[:at] + draw.choice("0123456789abcdefXé") + text[at + 1 + draw.randrange(3) :]
    if headers[1] == text:
        headers[1] = text[:-1]
    return Hostile("damaged signature", request(GOOD, headers), frozenset({401}))


def old(draw: random.Random) -> Hostile:
    off = draw.choice((-1, 1)) * draw.randrange(310, 10**8)
    return Hostile("old", request(GOOD, signed(GOOD, _id(draw), int(time.time()) + off)), frozenset({401}))


def odd_timestamp(draw: random.Random) -> Hostile:
    stamp = draw.choice(("", "-1", "1e9", "0x10", "\u0661\u0662", "9" * 400, "NaN", "1700000000.5"))
    return Hostile("odd timestamp", request(GOOD, signed(GOOD, _id(draw), stamp)), frozenset({400, 401}))


def bad_delivery(draw: random.Random) -> Hostile:
    delivery = draw.choice(
        ("", "../../x", "a b", "x" * 129, "\u00e9", "a\tb", "'; drop table flow_run; --", "a/b")
    )
    return Hostile("bad delivery", request(GOOD, signed(GOOD, delivery)), frozenset({400}))


def unknown_field(draw: random.Random) -> Hostile:
    asked: tuple[dict[str, object], ...] = (
        {"parameters": {"cluster": "production"}},
        {"parameters": {"store": "/etc"}},
        {"parameters": {"__class__": 1}},
        {"parameters": {"profile": "../../../etc/passwd"}},
        {"parameters": {"profile": {"__prefect_kind": "jinja", "template": "{{ 7 * 7 }}"}}},
        {"parameters": {"__prefect_kind": "json", "value": "{}"}},
        {"parameters": {"seed": -1}},
        {"parameters": {"seed": "1"}},
        {"parameters": {"seed": 1e300}},
        {"parameters": {"seed": True}},
        {"parameters": {"run_id": "../x"}},
        {"parameters": {"run_id": "a\u0000b"}},
        {"parameters": {"stages": ["everything"]}},
        {"parameters": []},
        {"dry_run": "no"},
        {"deployment": "clean/virtual-study"},
        {"parameters": {"profile": "smoke"}, "idempotency_key": "x"},
    )
    body = json.dumps(draw.choice(asked)).encode()
    return Hostile("unknown field", request(body, signed(body, _id(draw))), REFUSED)


def no_json(draw: random.Random) -> Hostile:
    body = draw.choice(
        (
            b"[" * 30_000,
            b'{"parameters":' * 3_000 + b"1" + b"}" * 3_000,
            b"{",
            b"null",
            b"[]",
            b'"x"',
            b'{"parameters": {"seed": NaN}}',
            b'{"parameters": {"seed": 1, "seed": 2}}',
            b'{"parameters": {"run_id": "\\ud800"}}',
            b"\xff\xfe{}",
            b'{"parameters": {"seed": ' + b"9" * 6000 + b"}}",
            b"\xef\xbb\xbf{}",
        )
    )
    return Hostile("no JSON", request(body, signed(body, _id(draw))), REFUSED)


def path_trick(draw: random.Random) -> Hostile:
    path = draw.choice(
        (
            "/hooks/../hooks/nope",
            "/hooks/%2e%2e%2fstudy",
            "/hooks/study%00",
            "/hooks/study/",
            "/hooks//study",
            "/hooks/STUDY",
            "/hooks/study;x=1",
            "/hooks/\u00e9tude",
            "/HOOKS/study",
            "/",
            "//127.0.0.1/hooks/study",
            "/hooks/" + "a" * 5000,
            "/api/deployments/",
        )
    )
    answers = frozenset({307, 400, 404, 409})
    return Hostile("path trick", request(GOOD, signed(GOOD, _id(draw)), path), answers)


def header_trick(draw: random.Random) -> Hostile:
    headers = signed(GOOD, _id(draw))
    more = draw.choice(
        (
            [headers[1]],
            [headers[0]],
            [f"X-Hub-Signature-256: {github_signature(GOOD)}"],
            [f"Authorization: Bearer {TOKEN}"],
            ["X-Virtscale-Delivery: other"],
            ["Content-Length: 3"],
            ["Transfer-Encoding: chunked"],
            ["X-Bad\r\n : y"],
            ["X-A: " + "b" * 100_000],
        )
    )
    return Hostile("header trick", request(GOOD, [*headers, *more]), frozenset({0, 400, 401, 431}))


def method_trick(draw: random.Random) -> Hostile:
    method = draw.choice(("GET", "PUT", "DELETE", "PATCH", "TRACE", "BREW"))
    return Hostile("method", request(GOOD, signed(GOOD, _id(draw)), method=method), frozenset({400, 405}))


def wrong_token(draw: random.Random) -> Hostile:
    token = draw.choice((TOKEN[:-1], TOKEN + "x", "", TOKEN.upper(), "\u00e9" * 9))
    scheme = draw.choice(("Bearer", "Basic", "bearer", ""))
    headers = [f"Authorization: {scheme} {token}", f"X-Virtscale-Delivery: {_id(draw)}"]
    return Hostile("wrong token", request(GOOD, headers), frozenset({401}))


def wrong_github(draw: random.Random) -> Hostile:
    secret = draw.choice((SECRET, TOKEN, "x" * 20))
    headers = [f"X-Hub-Signature-256: {github_signature(GOOD, secret)}", f"X-GitHub-Delivery: {_id(draw)}"]
    return Hostile("wrong GitHub secret", request(GOOD, headers), frozenset({401}))


def large_body(draw: random.Random) -> Hostile:
    size = draw.choice((65 * 1024 + 1, 200_000, TOO_LARGE))
    headers = signed(b"", _id(draw))
    return Hostile("large body", request(b"", headers, length=size), frozenset({413}))


def slow_body(draw: random.Random) -> Hostile:
    return Hostile(
        "slow body", request(GOOD[:5], signed(GOOD, _id(draw)), length=len(GOOD)), frozenset({400})
    )


QUICK: tuple[Callable[[random.Random], Hostile], ...] = (
    unsigned,
    wrong_secret,
    off_by_one_byte,
    damaged_signature,
    old,
    odd_timestamp,
    bad_delivery,
    unknown_field,
    no_json,
    path_trick,
    header_trick,
    method_trick,
    wrong_token,
    wrong_github,
    large_body,
)


def hostiles(
    count: int, more: tuple[Callable[[random.Random], Hostile], ...] = (), seed: int = 1
) -> Iterator[Hostile]:
    """Requests of every kind, and of `more`; a slow one now and then."""
    draw, kinds = random.Random(seed), QUICK + more
    for number in range(count):
        yield slow_body(draw) if number % 100 == 99 else kinds[number % len(kinds)](draw)
