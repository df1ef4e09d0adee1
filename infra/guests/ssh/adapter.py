"""The Guests port on the real network: knock, wait for the banner, log in, keep the connection."""

import asyncio
import gc
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import asyncssh

from infra.errors import GuestError, InvalidRun
from infra.guests.port import Answer, Target
from infra.guests.ssh import cloud_init, login
from infra.guests.ssh.folder import forget_keys
from infra.guests.ssh.jump import Jump, Link
from infra.guests.ssh.jump_knocking import JumpKnocker
from infra.guests.ssh.keys import HostKeys, ensure_key, public_line
from infra.guests.ssh.knocking import Knocker, stay_alive
from infra.guests.ssh.probe import Probe
from infra.guests.ssh.room import check_room
from infra.guests.ssh.settings import SshSettings, assigned_address, stated_address
from infra.manifests import CloudInit

Find = Callable[[str], Awaitable[str]]
"""The address of a VM that runs, from its VMI; "" when none is stated."""
TICK_S = 0.01
LOGINS_A_TICK = 2
LATE_NS = 10_000_000
"""Later than this knocks should not be: a key exchange costs a hundred times what a knock does."""
LATE_TICKS = 5
"""While they are, a login begins every so many ticks only: however busy this machine is, logins go on."""
FULL_COLLECTION = 5_000
"""Smaller garbage collections to a full one: it looks at every connection, and no knock leaves meanwhile."""


class SshGuests:
    """Guests of a run; create it anywhere, use it on one event loop."""

    steps: tuple[str, ...] = ("tcp_open", "ssh_banner", "ssh_ready")

    def __init__(self, settings: SshSettings, folder: Path, find: Find) -> None:
        self._settings, self._folder, self._find = settings, folder, find
        self._probes: dict[str, Probe] = {}
        self._jump = Jump(settings) if settings.jump else None
        self._knocker: Knocker | JumpKnocker | None = None
        self._waiting: deque[tuple[Probe, Link]] = deque()
        self._logins: set[asyncio.Task[None]] = set()
        self._buffer: list[Answer] = []
        self._heard = asyncio.Event()
        self._addresses: dict[str, str] = {}
        self._connections: dict[str, asyncssh.SSHClientConnection] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._pumping: asyncio.Task[None] | None = None
        self._thresholds = gc.get_threshold()

    @cached_property
    def _login(self) -> login.Login:
        """Made when a guest is made or reached: who only cleans or reports leaves no key behind."""
        return login.Login(
            self._settings.user,
            ensure_key(self._folder),
            HostKeys(self._folder / "host_keys"),
            self._settings.login_timeout_s,
            self._settings.command_timeout_s,
        )

    @cached_property
    def _options(self) -> asyncssh.SSHClientConnectionOptions:
        return login.options_of(self._login)

    @property
    def assigned(self) -> bool:
        """Whether addresses are ours to give, and not to be waited for."""
        return bool(self._settings.cidr)

    @property
    def path(self) -> str:
        """The way to a guest's SSH port."""
        return self._settings.path

    def cloud_init(self, vm: str) -> CloudInit | None:
        """What the guest of a VM that is made now must be told to be reached."""
        self._login.host_keys.forget(vm)
        return cloud_init.cloud_init(self._settings, vm, public_line(self._login.key))

    def address_in(self, status: dict[str, Any]) -> str:
        """The address that a VMI's status states for the interface in use."""
        return stated_address(self._settings, status)

    def check_room(self, vms: int) -> None:
        """Make sure that this machine, and the run's CIDR, have room for so many guests, and the run a key.

        Raises:
            InvalidRun: too few file descriptors, ports, places for neighbours, or addresses; no key.
        """
        if self._jump is None:
            check_room(vms, self._settings.cidr)
        try:
            ensure_key(self._folder)
        except GuestError as error:
            raise InvalidRun(str(error)) from error
        if self.assigned:
            assigned_address(self._settings, f"vm-{vms}")

    async def reach(self) -> None:
        """Make sure that the way to the guests can be gone: a jump host lets us in.

        Raises:
            InvalidRun: it does not; the text says why.
        """
        if self._jump is not None:
            try:
                (await self._jump.take()).used -= 1
            except GuestError as error:
                raise InvalidRun(f"guests.jump {self._settings.jump}: {error}") from error

    def arm(self, vms: Iterable[str]) -> None:
        """Make room for these VMs; where addresses are assigned, knocking begins at once.

        Raises:
            InvalidRun: this machine has too few file descriptors, ports or places for neighbours.
        """
        names = list(vms)
        self.disarm()
        self._drop_connections()
        self.check_room(len(names))
        self._probes = {vm: Probe(vm, "") for vm in names}
        self._buffer.clear()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:2], FULL_COLLECTION)
        self._knocker = self._new_knocker()
        self._pumping = asyncio.create_task(self._pump(), name="logins")
        if self.assigned:
            for vm in names:
                self.aim(Target(vm, assigned_address(self._settings, vm)))

    def _new_knocker(self) -> Knocker | JumpKnocker:
        if self._jump is not None:
            return JumpKnocker(self._jump, self._settings, self._tell, self._admit)
        return Knocker(self._settings.port, self._settings.interval_s, self._tell, self._admit)

    def aim(self, target: Target) -> None:
        """Knock at an address from now on; a changed address is knocked at anew."""
        self._addresses[target.vm] = target.address
        probe = self._probes.get(target.vm)
        if probe is None or self._knocker is None or probe.address == target.address:
            return
        if self.assigned and target.address != assigned_address(self._settings, target.vm):
            return
        self._knocker.drop(probe)
        probe.address = target.address
        if probe.phase != "ready":
            probe.phase = "knocking"
            self._knocker.knock(probe)

    def reason(self, vm: str) -> str | None:
        """Why an armed guest did not answer all steps, as far as it is known; None when it did."""
        probe = self._probes.get(vm)
        if probe is None or probe.phase == "ready":
            return None
        return f"{probe.address or 'no address'}: {probe.shown_reason}"

    def _tell(self, answer: Answer) -> None:
        self._buffer.append(answer)
        self._heard.set()

    async def answers(self) -> AsyncIterator[list[Answer]]:
        """Answers in batches, until `disarm`."""
        while self._knocker is not None:
            await self._heard.wait()
            self._heard.clear()
            batch, self._buffer = self._buffer, []
            if batch:
                yield batch

    def disarm(self) -> None:
        """Stop probing; connections that are open stay open for commands."""
        if self._knocker is not None:
            self._knocker.stop()
            self._knocker = None
            gc.set_threshold(*self._thresholds)
        for task in (*self._logins, *((self._pumping,) if self._pumping else ())):
            task.cancel()
        while self._waiting:
            self._waiting.popleft()[1].close()
        self._heard.set()

    def _admit(self, probe: Probe, link: Link) -> None:
        self._waiting.append((probe, link))

    async def _pump(self) -> None:
        """Begin logins as fast as knocks allow; who waits here waits inside the error bound."""
        for tick in count():
            if self._knocker is None:
                return
            wanted = LOGINS_A_TICK if self._knocker.late_ns < LATE_NS else tick % LATE_TICKS == 0
            room = self._settings.logins_at_once - len(self._logins)
            for _ in range(min(wanted, room, len(self._waiting))):
                self._begin_login(*self._waiting.popleft())
            await asyncio.sleep(TICK_S)

    def _begin_login(self, probe: Probe, link: Link) -> None:
        def ended(task: "asyncio.Task[None]") -> None:
            self._logins.discard(task)
            if task.cancelled():
                # it may not have begun, and then nobody else knows of the link
                link.close()

        task = asyncio.create_task(self._log_in(probe, link), name=f"login {probe.vm}")
        self._logins.add(task)
        task.add_done_callback(ended)

    async def _log_in(self, probe: Probe, link: Link) -> None:
        began, address = time.monotonic_ns(), probe.address
        try:
            connection = await login.log_in(probe.vm, link, self._login, self._options)
        except GuestError as error:
            if probe.address == address and self._knocker is not None:
                probe.ready_not_yet_ns = began
                probe.rest(time.monotonic_ns(), str(error).partition(": ")[2])
                self._knocker.knock(probe)
            return
        seen = time.monotonic_ns()
        if probe.address != address:
            connection.abort()
            return
        probe.phase = "ready"
        self._connections[probe.vm] = connection
        not_yet = max(probe.ready_not_yet_ns, probe.banner_not_yet_ns)
        self._tell(Answer(probe.vm, "ssh_ready", not_yet, seen))

    async def run(self, vm: str, command: str, timeout_s: float) -> bytes:
        """Run a command line in the guest's shell, return its standard output.

        Raises:
            GuestError: no connection, it failed, or it took longer than that.
        """
        return await login.command(vm, await self._connection(vm), command, timeout_s)

    async def put(self, vm: str, path: str, content: bytes) -> None:
        """Write a file, whole or not at all.

        Raises:
            GuestError: no connection, or it could not be written.
        """
        connection = await self._connection(vm)
        await login.write_file(vm, connection, (path, content), self._settings.command_timeout_s)

    async def fetch(self, vm: str, path: str) -> bytes:
        """Read a file.

        Raises:
            GuestError: no connection, no such file.
        """
        connection = await self._connection(vm)
        return await login.read_file(vm, connection, path, self._settings.command_timeout_s)

    async def _connection(self, vm: str) -> asyncssh.SSHClientConnection:
        async with self._locks.setdefault(vm, asyncio.Lock()):
            kept = self._connections.get(vm)
            if kept is None or kept.is_closed():
                self._connections.pop(vm, None)
                kept = self._connections[vm] = await self._connect(vm)
            return kept

    async def _connect(self, vm: str) -> asyncssh.SSHClientConnection:
        address = await self._address(vm)
        try:
            link = await (self._dial(vm, address) if self._jump is None else self._jump.dial(vm, address))
        except GuestError:
            self._addresses.pop(vm, None)
            raise
        return await login.log_in(vm, link, self._login, self._options)

    async def _dial(self, vm: str, address: str) -> Link:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            opening = asyncio.get_running_loop().sock_connect(sock, (address, self._settings.port))
            await asyncio.wait_for(opening, self._settings.command_timeout_s)
        except (OSError, TimeoutError) as error:
            sock.close()
            number = getattr(error, "errno", None)
            why = os.strerror(number) if number else "no answer"
            raise GuestError(f"guest {vm}: {address} port {self._settings.port}: {why}") from error
        stay_alive(sock)
        return sock

    async def _address(self, vm: str) -> str:
        if self.assigned:
            return assigned_address(self._settings, vm)
        address = self._addresses.get(vm) or await self._find(vm)
        if not address:
            raise GuestError(f"guest {vm}: its VirtualMachineInstance states no address; is it running?")
        self._addresses[vm] = address
        return address

    def _drop_connections(self) -> None:
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()
        self._addresses.clear()

    def forget(self) -> None:
        """Drop connections and keys: no guest of the run is left."""
        self._drop_connections()
        forget_keys(self._folder)
        for made in ("_login", "_options"):
            self.__dict__.pop(made, None)

    async def close(self) -> None:
        """Close every connection, and wait until that is done."""
        self.disarm()
        tasks = [*self._logins, *((self._pumping,) if self._pumping else ())]
        closing = [connection.wait_closed() for connection in self._connections.values()]
        self._drop_connections()
        await asyncio.gather(*tasks, *closing, return_exceptions=True)
        if self._jump is not None:
            await self._jump.close()
