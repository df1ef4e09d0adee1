"""PURE. Who sent a request: a signature over timestamp and body, GitHub's over the body, or a token.

Every comparison takes the same time whatever is wrong. A request has to use exactly one of the forms.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WINDOW_S = 300
"""A signed timestamp may be so far from our clock."""

DELIVERY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")

TIMESTAMP_HEADER, SIGNATURE_HEADER = "x-virtscale-timestamp", "x-virtscale-signature"
DELIVERY_HEADER = "x-virtscale-delivery"
GITHUB_SIGNATURE, GITHUB_DELIVERY, GITHUB_EVENT = "x-hub-signature-256", "x-github-delivery", "x-github-event"


@dataclass(frozen=True, slots=True)
class Secrets:
    """What senders know; several of a kind while one replaces another. Never shown."""

    signing: tuple[str, ...] = field(default=(), repr=False)
    github: tuple[str, ...] = field(default=(), repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        """Whether anybody could send anything."""
        return bool(self.signing or self.github or self.tokens)


class Sender(NamedTuple):
    """Of a genuine request: its form, its delivery id, and the `proof` that no other delivery may use."""

    form: str
    delivery: str
    proof: str = ""
    event: str = ""


class Refused(Exception):
    """The request does not prove who sent it; the text is for our log, not for the sender."""


class Headers:
    """Header fields by lower-case name; one that comes twice proves nothing."""

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in fields:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def one(self, name: str) -> str:
        """The value of a field that is there once; empty when it is not there."""
        values = self._values.get(name, [""])
        if len(values) > 1:
            raise Refused(f"{name} is there {len(values)} times")
        return values[0].strip()


def sender_of(headers: Headers, body: bytes, secrets: Secrets, now_s: float) -> Sender:
    """Who sent the request.

    Raises:
        Refused: it is not signed, not by a secret of ours, or not now.
    """
    forms = [name for name in (SIGNATURE_HEADER, GITHUB_SIGNATURE, "authorization") if name in headers]
    if len(forms) != 1:
        raise Refused("no signature" if not forms else "more than one form of signature")
    if forms[0] == SIGNATURE_HEADER:
        return _signed(headers, body, secrets, now_s)
    return _github(headers, body, secrets) if forms[0] == GITHUB_SIGNATURE else _bearer(headers, secrets)


def _signed(headers: Headers, body: bytes, secrets: Secrets, now_s: float) -> Sender:
    stamp, given = headers.one(TIMESTAMP_HEADER), headers.one(SIGNATURE_HEADER)
    if not _TIMESTAMP.fullmatch(stamp):
        raise Refused("no timestamp")
    if not _matches(given, secrets.signing, stamp.encode() + b"." + body):
        raise Refused("wrong signature")
    if abs(now_s - int(stamp)) > WINDOW_S:
        raise Refused("timestamp outside of the window")
    return Sender("signed", headers.one(DELIVERY_HEADER), proof=given)


def _github(headers: Headers, body: bytes, secrets: Secrets) -> Sender:
    """GitHub signs the body alone: equal bodies are one delivery, whatever the unsigned id says."""
    if not _matches(headers.one(GITHUB_SIGNATURE), secrets.github, body):
        raise Refused("wrong signature")
    if not headers.one(GITHUB_DELIVERY):
        raise Refused("no delivery id")
    return Sender("github", hashlib.sha256(body).hexdigest(), event=headers.one(GITHUB_EVENT))


def _bearer(headers: Headers, secrets: Secrets) -> Sender:
    scheme, _, token = headers.one("authorization").partition(" ")
    equal = [hmac.compare_digest(token.encode(), each.encode()) for each in secrets.tokens]
    if scheme.lower() != "bearer" or not any(equal):
        raise Refused("wrong token")
    return Sender("bearer", headers.one(DELIVERY_HEADER))


def _matches(given: str, secrets: Sequence[str], content: bytes) -> bool:
    right = [f"sha256={sign(secret, content)}" for secret in secrets]
    equal = [hmac.compare_digest(each.encode(), given.encode()) for each in right]
    return bool(_SIGNATURE.fullmatch(given)) and any(equal)


def sign(secret: str, content: bytes) -> str:
    """HMAC-SHA256 in hexadecimal, as senders compute it."""
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
