"""From a closed port to a banner through a jump host: it is asked for channels, and says what became of each.

What the direct way knows from sockets is known here from answers. A refusal holds for the moment it was asked
for, so the round trip is inside every bound. An attempt cannot be taken back: two of a guest at most wait at
once, on the jump host's own schedule (SYNs after 1, 3, 7 s).
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import asyncssh

from infra.errors import GuestError
from infra.guests.port import Answer
from infra.guests.ssh.banner import read_banner
from infra.guests.ssh.jump import Channel, Jump, is_refused, is_silent
from infra.guests.ssh.knocking import PATIENCE_NS, WRONG_BANNER_S, Tell
from infra.guests.ssh.probe import NO_ANSWER, REFUSED, Probe
from infra.guests.ssh.room import PER_GUEST
from infra.guests.ssh.settings import SshSettings

Admit = Callable[[Probe, Channel], None]
BREATH = 50
"""Guests that are asked for before the event loop may hear answers."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A channel that was asked for; `sent_ns` 0: it waits for a connection to the jump host."""

    address: str
    sent_ns: int = 0


class JumpKnocker:
    """As `Knocker`, through a jump host."""

    def __init__(self, jump: Jump, settings: SshSettings, tell: Tell, admit: Admit) -> None:
        self._jump, self._settings, self._tell, self._admit = jump, settings, tell, admit
        self._knocking: dict[str, Probe] = {}
        self._listening: dict[str, Channel] = {}
        self._attempts: dict[str, list[Attempt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = asyncio.create_task(self._rounds(), name="knocks through the jump host")
        self.late_ns = 0
        """How much longer than it should the last round of knocks took."""

    def knock(self, probe: Probe) -> None:
        """Knock at this guest from the next round on."""
        self._knocking[probe.vm] = probe

    def drop(self, probe: Probe) -> None:
        """Leave this guest alone; what was asked for it is closed when it comes."""
        self._knocking.pop(probe.vm, None)
        channel = self._listening.pop(probe.vm, None)
        if channel is not None:
            channel.close()

    def stop(self) -> None:
        """Leave every guest alone and close what is open."""
        self._running.cancel()
        self._knocking.clear()
        for channel in self._listening.values():
            channel.close()
        self._listening.clear()

    async def _rounds(self) -> None:
        interval_s = self._settings.interval_s
        while True:
            began = time.monotonic()
            for hop in self._jump.hops:
                self._begin(hop.prove())
            for number, probe in enumerate(list(self._knocking.values())):
                self._turn_of(probe, time.monotonic_ns())
                if number % BREATH == 0:
                    await asyncio.sleep(0)
            took_s = time.monotonic() - began
            self.late_ns = max(0, round((took_s - interval_s) * 1e9))
            await asyncio.sleep(max(0.0, interval_s - took_s))

    def _begin(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _turn_of(self, probe: Probe, now_ns: int) -> None:
        if now_ns < probe.rests_until_ns or probe.vm not in self._knocking:
            return
        attempts = self._attempts.setdefault(probe.vm, [])
        if attempts:
            newest = attempts[-1]
            if not newest.sent_ns or now_ns - newest.sent_ns < PATIENCE_NS:
                return
            probe.silent_ns = max(probe.silent_ns, newest.sent_ns)
            probe.reason = NO_ANSWER
        if len(attempts) < PER_GUEST:
            attempts.append(Attempt(probe.address))
            self._begin(self._ask(probe, attempts[-1]))

    async def _ask(self, probe: Probe, attempt: Attempt) -> None:
        try:
            hop = await self._jump.take()
            channel = Channel(attempt.address, hop)
            attempt.sent_ns = time.monotonic_ns()
            await hop.dial(channel, self._settings.port)
        except GuestError as error:
            probe.reason = str(error)
        except asyncssh.ChannelOpenError as error:
            self._failed(probe, attempt, error)
        else:
            self._opened(probe, attempt, channel)
        finally:
            self._attempts[probe.vm].remove(attempt)

    def _is_wanted(self, probe: Probe, attempt: Attempt) -> bool:
        return self._knocking.get(probe.vm) is probe and probe.address == attempt.address

    def _failed(self, probe: Probe, attempt: Attempt, error: asyncssh.ChannelOpenError) -> None:
        if not self._is_wanted(probe, attempt):
            return
        if is_refused(error):
            probe.closed_ns = max(probe.closed_ns, attempt.sent_ns)
            probe.reason = REFUSED
        elif is_silent(error):
            probe.silent_ns = max(probe.silent_ns, attempt.sent_ns)
            probe.reason = f"TCP: {error.reason}"
        else:
            # of the jump host's own making: it says nothing about the guest
            probe.reason = f"the jump host opens no channel: {error.reason or error.code}"

    def _opened(self, probe: Probe, attempt: Attempt, channel: Channel) -> None:
        seen = time.monotonic_ns()
        if not self._is_wanted(probe, attempt):
            channel.close()
            return
        del self._knocking[probe.vm]
        self._listening[probe.vm] = channel
        probe.opened(seen, channel.hop.lag_ns)
        if probe.is_first(1):
            self._tell(Answer(probe.vm, "tcp_open", probe.closed_ns, seen))
        channel.heard = lambda: self._heard(probe, attempt, channel)
        self._heard(probe, attempt, channel)

    def _heard(self, probe: Probe, attempt: Attempt, channel: Channel) -> None:
        seen, hop = time.monotonic_ns(), channel.hop
        banner = read_banner(channel.data)
        if banner.ready:
            self._listening.pop(probe.vm, None)
            channel.heard = lambda: None
            if probe.is_first(2):
                probe.banner_not_yet_ns = probe.no_banner_ns(hop.proved_ns - hop.lag_ns)
                self._tell(Answer(probe.vm, "ssh_banner", probe.banner_not_yet_ns, seen))
            probe.answered()
            self._admit(probe, channel)
        elif banner.wrong and not channel.is_ended:
            if not probe.reason.startswith("wrong banner"):
                probe.reason = f"wrong banner: {banner.wrong}"
                loop = asyncio.get_running_loop()
                loop.call_later(WRONG_BANNER_S, self._lost, probe, attempt, channel)
        elif channel.is_ended:
            self._lost(probe, attempt, channel)

    def _lost(self, probe: Probe, attempt: Attempt, channel: Channel) -> None:
        if self._listening.get(probe.vm) is not channel:
            return
        del self._listening[probe.vm]
        channel.close()
        is_gone = channel.hop.connection.is_closed()
        why = "the connection to the jump host was lost" if is_gone else "closed without a banner"
        probe.ended(attempt.sent_ns, why)
        self.knock(probe)
