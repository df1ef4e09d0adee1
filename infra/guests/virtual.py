"""Guests of the virtual cluster, seen through a model of the real prober: polling, one connection each."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache
from typing import Any

from infra.cluster.virtual.description import Guest, Probing
from infra.cluster.virtual.loop import VirtualLoop
from infra.cluster.virtual.machines import Machine, Machines
from infra.errors import GuestError
from infra.guests.port import Answer, Target
from infra.guests.programs import Invocation, Program
from infra.manifests import CloudInit

COMMAND_S = 0.3
"""One command over an open connection; assumption (real guests: 0.1 to 1 s)."""


@lru_cache(64)
def _words(command: str) -> tuple[str, ...]:
    """A command line as a shell splits it; a whole fleet runs the same one."""
    return tuple(shlex.split(command))


class VirtualGuests:
    """Watches armed guests from the moment their address is known."""

    steps: tuple[str, ...] = ("tcp_open", "ssh_banner", "ssh_ready")

    def __init__(self, machines: Machines, loop: VirtualLoop, guest: Guest, probing: Probing) -> None:
        self._machines = machines
        self._loop = loop
        self._interval_ns = round(probing.interval_s * 1e9)
        self._banner_ns = round(guest.banner_after_s * 1e9)
        self._command_ns = round(guest.command_after_s * 1e9)
        self._armed: set[str] = set()
        self._aimed_ns: dict[str, int] = {}
        self._buffer: list[Answer] = []
        self._waiter: asyncio.Future[None] | None = None
        self.programs: dict[str, Program] = {}
        """What is installed in every guest, by name; see `infra.guests.programs`."""
        self.before_use: Callable[[Machine, dict[str, bytes]], None] = lambda machine, files: None
        """Called before anything in a guest is looked at: what ran meanwhile writes its files."""
        machines.on_sshd = self._sshd

    @property
    def path(self) -> str:
        """There is no network."""
        return "in process"

    @property
    def assigned(self) -> bool:
        """The virtual cluster gives out addresses."""
        return False

    def cloud_init(self, vm: str) -> CloudInit | None:
        """Nothing is told."""
        return None

    def address_in(self, status: dict[str, Any]) -> str:
        """The address of the first interface."""
        interfaces = status.get("interfaces")
        return (interfaces[0].get("ipAddress") or "") if interfaces else ""

    def check_room(self, vms: int) -> None:
        """Any number can be probed."""

    async def reach(self) -> None:
        """The model is in this process."""

    def reason(self, vm: str) -> str | None:
        """The model of the prober does not say."""
        return None

    def arm(self, vms: Iterable[str]) -> None:
        """Expect these VirtualMachines."""
        self._armed = set(vms)
        self._aimed_ns.clear()
        self._buffer.clear()

    def aim(self, target: Target) -> None:
        """Poll a guest from now on."""
        if target.vm in self._armed and target.vm not in self._aimed_ns:
            self._aimed_ns[target.vm] = self._loop.now_ns
            machine = self._machines.machine(target.vm)
            if machine is not None:
                self._sshd(machine)

    def _sshd(self, machine: Machine) -> None:
        vm = machine.vm
        aimed = self._aimed_ns.get(vm)
        if vm not in self._armed or aimed is None or machine.sshd_ns is None:
            return
        # polls happen at aim + k * interval: the first one at or after the port opened sees it
        polls = max(0, -(-(machine.sshd_ns - aimed) // self._interval_ns))
        opened = aimed + polls * self._interval_ns
        banner = max(opened, machine.sshd_ns + self._banner_ns)
        # before the first poll nobody looked: then the interval begins with the batch
        closed = opened - self._interval_ns if polls else 0
        # a banner that came with the connection was perhaps ready before it
        silent = opened if banner > opened else closed
        self._at(Answer(vm, "tcp_open", closed, opened))
        self._at(Answer(vm, "ssh_banner", silent, banner))
        self._at(Answer(vm, "ssh_ready", banner if silent == opened else closed, banner + self._command_ns))

    def _at(self, answer: Answer) -> None:
        self._loop.call_at_ns(answer.seen_ns, self._tell, answer)

    def _tell(self, answer: Answer) -> None:
        if answer.vm not in self._armed:
            return
        self._buffer.append(answer)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def answers(self) -> AsyncIterator[list[Answer]]:
        """Answers in batches, until `disarm`."""
        while self._armed:
            if not self._buffer:
                self._waiter = self._loop.create_future()
                await self._waiter
            batch, self._buffer = self._buffer, []
            yield batch

    def disarm(self) -> None:
        """Stop polling."""
        self._armed = set()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def forget(self) -> None:
        """Nothing was kept."""

    async def run(self, vm: str, command: str, timeout_s: float) -> bytes:
        """Run a command line (split as a shell splits it); a program that is not installed does nothing.

        Raises:
            GuestError: the guest is off or has no sshd, the program failed or took longer than that.
        """
        files = await self._connected(vm)
        name, *arguments = _words(command)
        program = self.programs.get(name)
        if program is None:
            return b""
        invocation = Invocation(vm, tuple(arguments), files)
        try:
            return await asyncio.wait_for(program(invocation), timeout_s)
        except TimeoutError as error:
            raise GuestError(f"guest {vm}: {name} did not end within {timeout_s:g} s") from error

    async def put(self, vm: str, path: str, content: bytes) -> None:
        """Write a file on the guest's disk; it goes with the disk."""
        files = await self._connected(vm)
        files[path] = content

    async def fetch(self, vm: str, path: str) -> bytes:
        """Read a file.

        Raises:
            GuestError: the guest is off, or there is no such file.
        """
        files = await self._connected(vm)
        try:
            return files[path]
        except KeyError:
            raise GuestError(f"guest {vm}: {path}: no such file") from None

    async def _connected(self, vm: str) -> dict[str, bytes]:
        """The guest's files; one command over an open connection takes its time, whatever it does."""
        machine = self._machines.machine(vm)
        if machine is None or machine.sshd_ns is None:
            raise GuestError(f"guest {vm}: no sshd answers; is it running?")
        await self._loop.wake_at(self._loop.now_ns + round(COMMAND_S * 1e9))
        files = self._machines.files.setdefault(machine.disk, {})
        self.before_use(machine, files)
        return files
