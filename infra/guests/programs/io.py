"""What is installed in virtual guests for the io stage: fio, and twins of our two scripts."""

from infra.clock import Clock
from infra.cluster.virtual.ceph_clients import CephClients
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.loop import EPOCH
from infra.cluster.virtual.machines import Machines
from infra.errors import GuestError
from infra.guests.io_scripts import CHECK_DATASET, START_AT
from infra.guests.programs import Invocation, Program
from infra.guests.programs.fio import MARK, Fio

NS = 10**9
EPOCH_NS = int(EPOCH.timestamp()) * NS
CLOCK_ERROR_S = 0.001
"""A guest's clock is wrong by at most that; assumption (chrony in one data centre)."""
WAKE_S = 0.002
"""From the agreed instant to the process that runs: at most; assumption (fork of systemd's)."""
DISK_GIB = 21
USED_GIB = 4.0
"""What the golden image itself takes of its disk, GiB; assumption (RHEL 9 server)."""


class IoPrograms:
    """The programs of all guests of one virtual cluster."""

    def __init__(self, machines: Machines, clock: Clock, description: Description, seed: int) -> None:
        self._clock = clock
        self._draws = Draws(seed)
        self.fio = Fio(machines, clock, CephClients(description.ceph, clock, seed))
        self.programs: dict[str, Program] = {"fio": self.fio, "sh": self._shell}

    async def _shell(self, invocation: Invocation) -> bytes:
        """`sh SCRIPT ...` of a script that was put there."""
        script, *arguments = invocation.arguments
        if script not in invocation.files:
            raise GuestError(f"guest {invocation.vm}: sh: cannot open {script}: No such file (exit 127)")
        inner = invocation._replace(arguments=tuple(arguments))
        if script == START_AT:
            return await self._start_at(inner)
        if script == CHECK_DATASET:
            return self._dataset(inner)
        return b""

    async def _start_at(self, invocation: Invocation) -> bytes:
        _unit, at, program, *arguments = invocation.arguments
        share = self._draws.uniform("clock error", invocation.vm)
        wrong_ns = round((2 * share - 1) * CLOCK_ERROR_S * NS)
        wait_ns = int(at) - EPOCH_NS - wrong_ns - self._clock.now_ns()
        woken_s = WAKE_S * self._draws.uniform(f"wake-up {at}", invocation.vm)
        await self._clock.sleep(max(0, wait_ns) / NS + woken_s)
        began_ns = EPOCH_NS + self._clock.now_ns() + wrong_ns
        said = f"started_ns={began_ns} clock_error_s={abs(wrong_ns) / NS + 1e-4:.6f}\n".encode()
        inner = invocation._replace(arguments=tuple(arguments))
        if program != "fio":
            raise GuestError(f"guest {invocation.vm}: Failed to find executable {program} (exit 203)")
        return said + await self.fio(inner)

    def _dataset(self, invocation: Invocation) -> bytes:
        folder = invocation.arguments[0].rstrip("/")
        files, size = (int(word) for word in invocation.files.get(f"{folder}/{MARK}", b"0 0").split())
        room = round((DISK_GIB - USED_GIB) * 1024**3) - size
        said = f"files={files} bytes={size} allocated={size} empty=0 unwritten=0 available={max(0, room)}\n"
        return said.encode()
