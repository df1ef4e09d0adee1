"""One guest as the prober knows it: how far it has come, and what is known about when it had not."""

import socket
import time
from dataclasses import dataclass
from typing import Literal

Phase = Literal["knocking", "listening", "login", "ready"]
SILENCE_NS = 1_000_000_000
"""Silence proves nothing about its last second: a SYN may have waited for ARP, which asks once a second."""
FIRST_REST_NS = 1_000_000_000
LONGEST_REST_NS = 8_000_000_000
"""Rest after a connection that ended early: OpenSSH 9.8 punishes those who come back at once."""
NO_ANSWER = "no answer at all to TCP (nothing at that address, or packets are dropped)"
REFUSED = "the port refuses connections (no sshd yet)"


@dataclass(slots=True)
class Attempt:
    """A socket that was asked to connect; `waits`: no answer yet."""

    sock: socket.socket
    sent_ns: int = 0
    waits: bool = False
    watched: bool = False


@dataclass(slots=True)
class Probe:
    """Observer's clock throughout.

    `closed_ns`: the latest start of an attempt that was refused, or brought no banner. `silent_ns`: the same
    of attempts without any answer. `banner_not_yet_ns` and `ready_not_yet_ns` hold for those steps.
    """

    vm: str
    address: str
    phase: Phase = "knocking"
    fresh: Attempt | None = None
    elder: Attempt | None = None
    closed_ns: int = 0
    silent_ns: int = 0
    opened_ns: int = 0
    banner_not_yet_ns: int = 0
    ready_not_yet_ns: int = 0
    failures: int = 0
    rests_until_ns: int = 0
    told: int = 0
    reason: str = "not probed yet"
    failure: str = ""

    @property
    def shown_reason(self) -> str:
        """Why it is not ready: while a connection is tried again, what ended the last one."""
        return self.failure if self.failure and self.phase != "knocking" else self.reason

    def not_open_ns(self, seen_ns: int) -> int:
        """The last moment at which the port was not open, as seen at `seen_ns`."""
        return max(self.closed_ns, min(self.silent_ns, seen_ns - SILENCE_NS))

    def no_banner_ns(self, unread_ns: int) -> int:
        """The last moment at which nobody can have had a banner; nothing had come until `unread_ns`.

        Whoever had connected as soon as the port opened would be ahead of us by as much as we do not know
        when it opened.
        """
        unsure = self.opened_ns - self.closed_ns
        return max(self.closed_ns, max(self.opened_ns, unread_ns) - unsure)

    def is_first(self, step: int) -> bool:
        """Whether this step, counted from 1, is reached for the first time."""
        if self.told >= step:
            return False
        self.told = step
        return True

    def opened(self, seen_ns: int, lag_ns: int = 0) -> None:
        """The port was seen open; an answer may be late by `lag_ns`, besides what silence may hide."""
        self.phase, self.opened_ns = "listening", seen_ns
        self.closed_ns = self.not_open_ns(seen_ns - lag_ns)
        self.reason = "TCP is open, no banner came"

    def answered(self) -> None:
        """The banner has come: a login is due."""
        self.phase, self.reason = "login", "SSH answers, no login yet"

    def ended(self, sent_ns: int, reason: str) -> None:
        """A connection that was asked for at `sent_ns` ended without a banner, or with a wrong one."""
        self.closed_ns = max(self.closed_ns, sent_ns)
        kept = self.reason if self.reason.startswith("wrong banner") else reason
        self.rest(time.monotonic_ns(), kept)

    def rest(self, now_ns: int, reason: str) -> None:
        """The connection ended early: knock again later, each time a little later."""
        rest_ns = min(LONGEST_REST_NS, FIRST_REST_NS << min(self.failures, 8))
        self.failures += 1
        self.reason = self.failure = reason
        self.phase = "knocking"
        self.rests_until_ns = now_ns + rest_ns
