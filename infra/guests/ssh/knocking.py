"""From a closed port to a banner: raw sockets, each VM in its turn, thousands of them on one core.

A guest that does not answer is asked again on a schedule of our own (the kernel's would be 1, 3, 7 s). Once a
port is open its connection is kept and waited on, however long the guest is silent: a new one would only make
a slow guest slower. The socket is handed on when the banner has come; the banner stays in it, unread.
"""

import asyncio
import os
import select
import socket
import time
from collections.abc import Callable
from errno import EADDRNOTAVAIL, EALREADY, ECONNREFUSED, EHOSTUNREACH, EINPROGRESS, EMFILE, ENFILE, ETIMEDOUT

from infra.guests.port import Answer
from infra.guests.ssh.banner import LONGEST, read_banner
from infra.guests.ssh.probe import NO_ANSWER, REFUSED, Attempt, Probe

SLOTS = 20
"""Turns of an interval: a VM has one, so knocks are spread and the event loop breathes between them."""
PATIENCE_NS = 900_000_000
"""How long an attempt is waited for beside a newer one: answers may be slow; then the kernel sends again."""
WRONG_BANNER_S = 5.0
"""How long another server's words are listened to; lines before the banner are allowed."""
EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
ENDED = select.EPOLLRDHUP | select.EPOLLHUP

Tell = Callable[[Answer], None]
Admit = Callable[[Probe, socket.socket], None]


class Knocker:
    """Knocks at the ports of guests and waits for their banners, until it is stopped."""

    def __init__(self, port: int, interval_s: float, tell: Tell, admit: Admit) -> None:
        self._port, self._tell, self._admit = port, tell, admit
        self._slot_ns = round(interval_s * 1e9) // SLOTS
        self._wheel: list[dict[str, Probe]] = [{} for _ in range(SLOTS)]
        self._sockets: dict[int, tuple[Probe, Attempt]] = {}
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._loop.add_reader(self._epoll.fileno(), self._events)
        self._looked = (time.monotonic_ns(),) * 3
        self._turn = 0
        self._added = 0
        self._due_ns = time.monotonic_ns()
        self._timer: asyncio.Handle = self._loop.call_soon(self._slot)
        self.late_ns = 0
        """How far the knocks are behind their schedule."""

    def knock(self, probe: Probe) -> None:
        """Knock at this guest from its next turn on."""
        self._wheel[self._added % SLOTS][probe.vm] = probe
        self._added += 1

    def drop(self, probe: Probe) -> None:
        """Leave this guest alone."""
        for slot in self._wheel:
            slot.pop(probe.vm, None)
        for attempt in (probe.fresh, probe.elder):
            self._close(attempt)
        probe.fresh = probe.elder = None

    def stop(self) -> None:
        """Leave every guest alone and close what is open."""
        self._timer.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        probes = [*(each for slot in self._wheel for each in slot.values())]
        for probe in [*probes, *(probe for probe, _ in self._sockets.values())]:
            self.drop(probe)
        self._epoll.close()

    def _slot(self) -> None:
        now = time.monotonic_ns()
        self._looked = (self._looked[1], self._looked[2], now)
        self.late_ns = now - self._due_ns
        for probe in list(self._wheel[self._turn].values()):
            self._turn_of(probe, now)
        self._turn = (self._turn + 1) % SLOTS
        # a debt of more than one interval is forgiven: the error bounds say what it cost
        self._due_ns = max(self._due_ns + self._slot_ns, now - SLOTS * self._slot_ns)
        self._timer = self._loop.call_at(self._due_ns / 1e9, self._slot)

    def _turn_of(self, probe: Probe, now_ns: int) -> None:
        if now_ns < probe.rests_until_ns:
            return
        self._pass_on(probe, now_ns)
        attempt = probe.fresh or self._new_attempt(probe)
        if attempt is None:
            return
        attempt.sent_ns = time.monotonic_ns()
        error = attempt.sock.connect_ex((probe.address, self._port))
        # asked at once: over loopback, and in a fast network, the answer is there already
        self._settle(probe, attempt, self._outcome(probe, attempt) if error == EINPROGRESS else error)

    def _outcome(self, probe: Probe, attempt: Attempt) -> int:
        """To connect again is how Linux tells what became of it, and makes a refused socket usable again."""
        return attempt.sock.connect_ex((probe.address, self._port))

    def _settle(self, probe: Probe, attempt: Attempt, error: int) -> None:
        attempt.waits = error == EALREADY
        if not error:
            self._opened(probe, attempt)
        elif attempt.waits:
            self._watch(probe, attempt)
        else:
            self._failed(probe, attempt, error)

    def _pass_on(self, probe: Probe, now_ns: int) -> None:
        """An attempt without an answer makes room for the next, and is waited for a little longer."""
        elder, fresh = probe.elder, probe.fresh
        if elder is not None and now_ns - elder.sent_ns > PATIENCE_NS:
            self._close(elder)
            probe.elder = None
        if fresh is None or not fresh.waits:
            return
        probe.silent_ns = fresh.sent_ns
        probe.reason = NO_ANSWER
        if probe.elder is None:
            probe.elder = fresh
        else:
            self._close(fresh)
        probe.fresh = None

    def _new_attempt(self, probe: Probe) -> Attempt | None:
        family = socket.AF_INET6 if ":" in probe.address else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE):
                raise
            probe.reason = "this machine has no file descriptor left for it (ulimit -n)"
            return None
        probe.fresh = Attempt(sock)
        return probe.fresh

    def _watch(self, probe: Probe, attempt: Attempt) -> None:
        if not attempt.watched:
            attempt.watched = True
            self._sockets[attempt.sock.fileno()] = (probe, attempt)
            self._epoll.register(attempt.sock.fileno(), EDGES)

    def _close(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            self._forget(attempt)
            attempt.sock.close()

    def _forget(self, attempt: Attempt) -> None:
        if attempt.watched:
            attempt.watched = False
            self._sockets.pop(attempt.sock.fileno(), None)
            self._epoll.unregister(attempt.sock.fileno())

    def _events(self) -> None:
        # every event at once, so that a socket without one had nothing to say at this look
        for number, event in self._epoll.poll(0, len(self._sockets) + 1):
            found = self._sockets.get(number)
            if found is None:
                continue
            probe, attempt = found
            if probe.phase == "listening":
                self._readable(probe, attempt, is_ended=bool(event & ENDED))
            elif attempt.waits:
                self._settle(probe, attempt, self._outcome(probe, attempt))

    def _failed(self, probe: Probe, attempt: Attempt, error: int) -> None:
        if error == ECONNREFUSED:
            probe.closed_ns = max(probe.closed_ns, attempt.sent_ns)
            probe.reason = REFUSED
        elif error == EADDRNOTAVAIL:
            probe.reason = "this machine has no ephemeral port left (net.ipv4.ip_local_port_range)"
        else:
            # an error of this machine's own (no route) says nothing about the guest
            if error in (EHOSTUNREACH, ETIMEDOUT):
                probe.silent_ns = max(probe.silent_ns, attempt.sent_ns)
            probe.reason = f"TCP: {os.strerror(error)}"
        if attempt is probe.elder:
            self._close(attempt)
            probe.elder = None

    def _opened(self, probe: Probe, attempt: Attempt) -> None:
        seen = time.monotonic_ns()
        if attempt is probe.elder:
            self._close(probe.fresh)
            probe.fresh, probe.elder = attempt, None
        self._close(probe.elder)
        probe.elder = None
        for slot in self._wheel:
            slot.pop(probe.vm, None)
        probe.opened(seen)
        stay_alive(attempt.sock)
        self._watch(probe, attempt)
        if probe.is_first(1):
            self._tell(Answer(probe.vm, "tcp_open", probe.closed_ns, seen))
        self._readable(probe, attempt)

    def _readable(self, probe: Probe, attempt: Attempt, *, is_ended: bool = False) -> None:
        try:
            data = attempt.sock.recv(LONGEST, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(probe, attempt, f"closed without a banner ({error.strerror})")
            return
        banner = read_banner(data)
        if banner.ready:
            self._heard(probe, attempt)
        elif banner.wrong:
            self._wrong(probe, attempt, banner.wrong)
        elif is_ended or not data:
            self._lost(probe, attempt, "closed without a banner")

    def _heard(self, probe: Probe, attempt: Attempt) -> None:
        seen = time.monotonic_ns()
        if probe.is_first(2):
            probe.banner_not_yet_ns = probe.no_banner_ns(self._looked[0])
            self._tell(Answer(probe.vm, "ssh_banner", probe.banner_not_yet_ns, seen))
        self._forget(attempt)
        probe.fresh = None
        probe.answered()
        self._admit(probe, attempt.sock)

    def _wrong(self, probe: Probe, attempt: Attempt, said: str) -> None:
        reason = f"wrong banner: {said}"
        if probe.reason != reason:
            probe.reason = reason
            self._loop.call_later(WRONG_BANNER_S, self._lost, probe, attempt, reason)

    def _lost(self, probe: Probe, attempt: Attempt, reason: str) -> None:
        if probe.fresh is not attempt or probe.phase != "listening":
            return
        self._close(attempt)
        probe.fresh = None
        probe.ended(attempt.sent_ns, reason)
        self.knock(probe)


def stay_alive(sock: socket.socket) -> None:
    """Find out by probes of the kernel when a guest that is waited on is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
