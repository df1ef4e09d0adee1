"""PURE. Who sent a request: a signature over timestamp and body, GitHub's or GitLab's, or a token.

Every comparison takes the same time whatever is wrong. A request has to use exactly one of the forms; an
event has to use that of its sender.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flows.webhook.events import SenderName

WINDOW_S = 300
"""A signed timestamp may be so far from our clock."""

DELIVERY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")

TIMESTAMP_HEADER, SIGNATURE_HEADER = "x-virtscale-timestamp", "x-virtscale-signature"
DELIVERY_HEADER = "x-virtscale-delivery"
GITHUB_SIGNATURE, GITHUB_DELIVERY, GITHUB_EVENT = "x-hub-signature-256", "x-github-delivery", "x-github-event"
GITLAB_TOKEN, GITLAB_KEY, GITLAB_EVENT = "x-gitlab-token", "idempotency-key", "x-gitlab-event-uuid"
BEARER = "authorization"
ID, STAMP, STANDARD = "webhook-id", "webhook-timestamp", "webhook-signature"
"""The form of standardwebhooks.com, in which GitLab signs."""
LEAST_KEY = 24
"""Bytes of a key, by that form."""
_PROOFS_OF = {"github": (GITHUB_SIGNATURE,), "gitlab": (GITLAB_TOKEN, STANDARD), "alertmanager": (BEARER,)}


@dataclass(frozen=True, slots=True)
class Secrets:
    """What senders know; several of a kind while one replaces another. Never shown."""

    signing: tuple[str, ...] = field(default=(), repr=False)
    github: tuple[str, ...] = field(default=(), repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)
    gitlab: tuple[str, ...] = field(default=(), repr=False)
    alertmanager: tuple[str, ...] = field(default=(), repr=False)
    gitlab_keys: tuple[bytes, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        """Whether anybody could send anything."""
        return any((self.signing, self.github, self.tokens, self.gitlab, self.alertmanager, self.gitlab_keys))


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
    forms = [name for name in (SIGNATURE_HEADER, GITHUB_SIGNATURE, BEARER) if name in headers]
    if len(forms) != 1:
        raise Refused("no signature" if not forms else "more than one form of signature")
    if forms[0] == SIGNATURE_HEADER:
        return _signed(headers, body, secrets, now_s)
    return _github(headers, body, secrets) if forms[0] == GITHUB_SIGNATURE else _bearer(headers, secrets)


def event_sender_of(
    name: SenderName, headers: Headers, body: bytes, secrets: Secrets, now_s: float
) -> Sender:
    """Who sent an event, with the id that the sender gives its delivery; Alertmanager gives none.

    Raises:
        Refused: it is not that sender, or not now, or proves what another sender would.
    """
    own, known = _PROOFS_OF[name], (each for proofs in _PROOFS_OF.values() for each in proofs)
    given = [each for each in (SIGNATURE_HEADER, *known) if each in headers]
    if not given or not set(given) <= set(own):
        raise Refused(f"{' or '.join(own)}: must be there, and no other form of signature")
    if name == "github":
        return _github(headers, body, secrets)
    if name == "gitlab":
        signed = STANDARD in headers
        return _standard(headers, body, secrets, now_s) if signed else _gitlab(headers, body, secrets)
    _bearer_of(headers, secrets.alertmanager)
    return Sender("alertmanager", "")


def _signed(headers: Headers, body: bytes, secrets: Secrets, now_s: float) -> Sender:
    stamp, given = headers.one(TIMESTAMP_HEADER), headers.one(SIGNATURE_HEADER)
    if not _TIMESTAMP.fullmatch(stamp):
        raise Refused("no timestamp")
    if not _matches(given, secrets.signing, stamp.encode() + b"." + body):
        raise Refused("wrong signature")
    _is_now(stamp, now_s)
    return Sender("signed", headers.one(DELIVERY_HEADER), proof=given)


def _standard(headers: Headers, body: bytes, secrets: Secrets, now_s: float) -> Sender:
    """GitLab's signature is over id, time and body; a token that is sent beside it proves nothing more."""
    key, stamp, given = headers.one(ID), headers.one(STAMP), headers.one(STANDARD)
    if not _TIMESTAMP.fullmatch(stamp):
        raise Refused("no timestamp")
    content = f"{key}.{stamp}.".encode() + body
    right = [f"v1,{standard_signature(secret, content)}".encode() for secret in secrets.gitlab_keys]
    equal = [hmac.compare_digest(each, one.encode()) for each in right for one in given.split(" ")]
    if not any(equal):
        raise Refused("wrong signature")
    _is_now(stamp, now_s)
    return Sender("gitlab", key)


def _is_now(stamp: str, now_s: float) -> None:
    if abs(now_s - int(stamp)) > WINDOW_S:
        raise Refused("timestamp outside of the window")


def _github(headers: Headers, body: bytes, secrets: Secrets) -> Sender:
    """GitHub signs the body alone: equal bodies are one delivery, whatever the unsigned id says."""
    if not _matches(headers.one(GITHUB_SIGNATURE), secrets.github, body):
        raise Refused("wrong signature")
    if not headers.one(GITHUB_DELIVERY):
        raise Refused("no delivery id")
    return Sender("github", hashlib.sha256(body).hexdigest(), event=headers.one(GITHUB_EVENT))


def _gitlab(headers: Headers, body: bytes, secrets: Secrets) -> Sender:
    """GitLab's key is the same for a repeat; its older event id may be that of several events at once."""
    _is_known(headers.one(GITLAB_TOKEN), secrets.gitlab)
    if key := headers.one(GITLAB_KEY):
        return Sender("gitlab", key)
    event = headers.one(GITLAB_EVENT)
    return Sender("gitlab", f"{event}-{hashlib.sha256(body).hexdigest()[:32]}" if event else "")


def _bearer(headers: Headers, secrets: Secrets) -> Sender:
    _bearer_of(headers, secrets.tokens)
    return Sender("bearer", headers.one(DELIVERY_HEADER))


def _bearer_of(headers: Headers, tokens: Sequence[str]) -> None:
    scheme, _, token = headers.one(BEARER).partition(" ")
    _is_known(token if scheme.lower() == "bearer" else "", tokens)


def _is_known(given: str, tokens: Sequence[str]) -> None:
    equal = [hmac.compare_digest(given.encode(), each.encode()) for each in tokens]
    if not any(equal):
        raise Refused("wrong token")


def _matches(given: str, secrets: Sequence[str], content: bytes) -> bool:
    right = [f"sha256={sign(secret, content)}" for secret in secrets]
    equal = [hmac.compare_digest(each.encode(), given.encode()) for each in right]
    return bool(_SIGNATURE.fullmatch(given)) and any(equal)


def sign(secret: str, content: bytes) -> str:
    """HMAC-SHA256 in hexadecimal, as senders compute it."""
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def standard_signature(key: bytes, content: bytes) -> str:
    """HMAC-SHA256 in base64, as GitLab computes it."""
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()


def standard_key(text: str) -> bytes:
    """The key in a signing token, `whsec_` and base64 of 24 bytes or more.

    Raises:
        ValueError: it is no such token.
    """
    prefix, _, encoded = text.partition("_")
    try:
        key = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        key = b""
    if prefix != "whsec" or len(key) < LEAST_KEY:
        raise ValueError(
            f"a signing token is whsec_ and base64 of {LEAST_KEY} bytes or more, as GitLab makes it"
        )
    return key
