"""The way through a jump host: channels over few connections, each a TCP connection from there to a guest.

The jump host is reached as `ssh` would reach it: by this user's configuration, keys, agent and known hosts.
Connections are made one after the other, so that its MaxStartups counts one of ours at most; a connection
holds so many channels as the profile says, or as the host allows if that is less.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable

import asyncssh

from infra.errors import GuestError
from infra.guests.ssh.banner import LONGEST
from infra.guests.ssh.settings import SshSettings, jump_parts

KEEPALIVE_S = 10
REST_NS = 2_000_000_000
"""Before a jump host that could not be logged in to is tried again."""
NOBODY = ("127.0.0.1", 1)
"""A port of the jump host's own that nobody listens at: being told so proves that all before is here."""


class Channel(asyncssh.SSHTCPSession[bytes]):
    """A TCP connection from the jump host to `address`: heard until a login takes it over.

    `heard` is called when bytes came, or no more will.
    """

    def __init__(self, address: str, hop: "Hop") -> None:
        self.address, self.hop = address, hop
        self.data = b""
        self.is_ended = False
        self.heard: Callable[[], None] = lambda: None
        self._chan: asyncssh.SSHTCPChannel[bytes] | None = None
        self._login: asyncssh.SSHTCPSession[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        """The jump host is connected to the guest."""
        self._chan = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """The guest said something."""
        if self._login is not None:
            self._login.data_received(data, datatype)
            return
        self.data += data
        if self._chan is not None and len(self.data) >= LONGEST:
            self._chan.pause_reading()
        self.heard()

    def eof_received(self) -> bool:
        """The guest will say no more."""
        if self._login is not None:
            self._login.eof_received()
        self.is_ended = True
        self.heard()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is gone, or the whole connection to the jump host."""
        self.hop.used -= 1
        self.is_ended = True
        if self._login is not None:
            self._login.connection_lost(exc)
        self.heard()

    async def create_connection(
        self, session_factory: Callable[[], asyncssh.SSHTCPSession[bytes]], remote_host: str, remote_port: int
    ) -> tuple[asyncssh.SSHTCPChannel[bytes], asyncssh.SSHTCPSession[bytes]]:
        """Let a login have it from here on, and what was heard so far: asyncssh's seam for tunnels."""
        if self._chan is None or self.is_ended:
            raise asyncssh.ConnectionLost("the channel has ended")
        self.heard = lambda: None
        login = self._login = session_factory()
        login.connection_made(self._chan)
        login.session_started()
        login.data_received(self.data, None)
        self._chan.resume_reading()
        return self._chan, login

    def close(self) -> None:
        """Close it at once."""
        self.heard = lambda: None
        if self._chan is not None:
            self._chan.abort()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        if self._chan is not None:
            await self._chan.wait_closed()


Link = socket.socket | Channel
"""A connection to a guest's SSH port whose banner is still to be read."""


class Hop:
    """One connection to the jump host.

    `lag_ns`: the longest that it was ever seen to take to answer, its login included. `proved_ns`: whatever
    left the jump host before this moment has arrived here.
    """

    def __init__(self, connection: asyncssh.SSHClientConnection, room: int, lag_ns: int) -> None:
        self.connection, self.room, self.lag_ns = connection, room, lag_ns
        self.used = 0
        self.proved_ns = 0
        self._proving = False

    async def dial(self, channel: Channel, port: int) -> None:
        """Open a channel in a place that was taken for it; the place is given back when that fails.

        Raises:
            asyncssh.ChannelOpenError: the guest, or the jump host, does not want it.
        """
        asked_ns = time.monotonic_ns()
        try:
            await self.connection.create_connection(lambda: channel, channel.address, port)
        except (asyncssh.ChannelOpenError, asyncio.CancelledError) as error:
            self.used -= 1
            if isinstance(error, asyncssh.ChannelOpenError) and not self.connection.is_closed():
                self._answered(asked_ns, error)
            raise

    def _answered(self, asked_ns: int, error: asyncssh.ChannelOpenError) -> None:
        self.proved_ns = max(self.proved_ns, asked_ns)
        if error.code == asyncssh.OPEN_RESOURCE_SHORTAGE:
            self.room = max(1, self.used)
        if is_refused(error):
            self.lag_ns = max(self.lag_ns, time.monotonic_ns() - asked_ns)

    async def prove(self) -> None:
        """Ask for what nobody has, so that the answer says how far the connection has been heard."""
        if self._proving or not self.used or self.connection.is_closed():
            return
        self._proving = True
        self.used += 1
        try:
            channel = Channel(NOBODY[0], self)
            await self.dial(channel, NOBODY[1])
            channel.close()
        except asyncssh.ChannelOpenError:
            return
        finally:
            self._proving = False


def is_refused(error: asyncssh.ChannelOpenError) -> bool:
    """Whether the guest itself refused: servers tell it in the words of the C library."""
    return error.code == asyncssh.OPEN_CONNECT_FAILED and "refused" in _words(error)


def is_silent(error: asyncssh.ChannelOpenError) -> bool:
    """Whether the jump host had no answer from the guest at all."""
    silent = ("no route", "unreachable", "timed out", "timeout")
    return error.code == asyncssh.OPEN_CONNECT_FAILED and any(word in _words(error) for word in silent)


def _words(error: asyncssh.ChannelOpenError) -> str:
    # asyncio, and so a jump host on it, hides the word behind the number
    return error.reason.lower().replace("[errno 111]", "refused").replace("[errno 113]", "no route")


class Jump:
    """Connections to one jump host, made when their room is needed."""

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self._hops: list[Hop] = []
        self._opening = asyncio.Lock()
        self._rests_until_ns = 0
        self._said = ""

    @property
    def hops(self) -> list[Hop]:
        """The connections that are open."""
        self._hops = [hop for hop in self._hops if not hop.connection.is_closed()]
        return self._hops

    async def take(self) -> Hop:
        """A connection with a place taken on it.

        Raises:
            GuestError: the jump host cannot be logged in to.
        """
        hop = self._free()
        if hop is None:
            async with self._opening:
                hop = self._free() or await self._open()
        hop.used += 1
        return hop

    def _free(self) -> Hop | None:
        return next((hop for hop in self.hops if hop.used < hop.room), None)

    async def _open(self) -> Hop:
        if time.monotonic_ns() < self._rests_until_ns:
            raise GuestError(self._said)
        settings, began_ns = self._settings, time.monotonic_ns()
        user, host, port = jump_parts(settings.jump)
        try:
            connection = await asyncssh.connect(
                host,
                port or (),
                username=user or (),
                login_timeout=settings.command_timeout_s,
                connect_timeout=settings.command_timeout_s,
                keepalive_interval=KEEPALIVE_S,
            )
        except (asyncssh.Error, OSError, TimeoutError, ValueError) as error:
            self._said = f"jump host {host}: {_why(error)}"
            self._rests_until_ns = time.monotonic_ns() + REST_NS
            raise GuestError(self._said) from error
        hop = Hop(connection, settings.jump_channels, time.monotonic_ns() - began_ns)
        self._hops.append(hop)
        return hop

    async def dial(self, vm: str, address: str) -> Channel:
        """A channel to the SSH port of a guest that is up.

        Raises:
            GuestError: there is none to be had.
        """
        try:
            hop = await self.take()
            channel = Channel(address, hop)
            async with asyncio.timeout(self._settings.command_timeout_s):
                await hop.dial(channel, self._settings.port)
        except GuestError as error:
            raise GuestError(f"guest {vm}: {error}") from error
        except (asyncssh.ChannelOpenError, TimeoutError) as error:
            why = str(error) or "no answer"
            raise GuestError(f"guest {vm}: {address} port {self._settings.port}: {why}") from error
        return channel

    async def close(self) -> None:
        """Close every connection, and so every channel."""
        for hop in self._hops:
            hop.connection.abort()
        await asyncio.gather(*(hop.connection.wait_closed() for hop in self._hops))
        self._hops.clear()


def _why(error: Exception) -> str:
    if isinstance(error, asyncssh.PermissionDenied):
        return "it refuses this user's keys (ssh must get there without asking for anything)"
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return "its host key is not among this user's known hosts (go there once by ssh)"
    if isinstance(error, TimeoutError):
        return "no answer"
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) and number > 0 else " ".join(str(error).split())
