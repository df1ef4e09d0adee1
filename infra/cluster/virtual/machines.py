"""What happens inside the VirtualMachines: boot work on shared disk and CPU, then sshd.

This is the truth behind the observations: a prober sees it later, through its own polling.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from infra.clock import Clock
from infra.cluster.virtual.capacity import SharedCapacity
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.draws import Draws

KEPT = "/var/lib/"
"""What of a guest's files outlives the process that models it."""


@dataclass(slots=True)
class Machine:
    """One powered-on guest; times on the cluster's clock, None until they have come."""

    vm: str
    disk: str
    node: str
    boots: bool
    sshd_ns: int | None = None


class Machines:
    """All guests of a virtual cluster, by the name of their VirtualMachine (a run has one namespace)."""

    def __init__(self, clock: Clock, description: Description, draws: Draws) -> None:
        self._clock = clock
        self._guest = description.guest
        self._cpu = description.nodes.cpu
        self._draws = draws
        self._running: dict[str, Machine] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._nodes: dict[str, SharedCapacity] = {}
        guest = description.guest
        self._storage = SharedCapacity(clock, guest.disk_gib_per_s * 1024, 1024.0)
        self._booted: dict[str, int] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        """Files of the guests, by disk and path."""
        self.on_sshd: Callable[[Machine], None] = lambda machine: None

    def power_on(self, vm: str, disk: str, node: str, *, boots: bool) -> None:
        """The domain of a VirtualMachine runs from now; `boots` False: it never reaches sshd."""
        machine = self._running[vm] = Machine(vm, disk, node, boots)
        if boots:
            task = asyncio.get_running_loop().create_task(self._boot(machine), name=f"guest {vm}")
            self._tasks[vm] = task

    async def _boot(self, machine: Machine) -> None:
        guest, ordinal = self._guest, self._booted.get(machine.disk, 0)
        self._booted[machine.disk] = ordinal + 1
        first = ordinal == 0
        await self._storage.use(guest.read_mib + (guest.copy_up_mib if first else 0))
        work = guest.boot_work_s + (guest.first_boot_work_s if first else 0)
        await self._node(machine.node).use(
            self._draws.around_s(work, guest.boot_spread, "boot work", f"{machine.vm} {ordinal}")
        )
        machine.sshd_ns = self._clock.now_ns()
        self._tasks.pop(machine.vm, None)
        self.on_sshd(machine)

    def _node(self, name: str) -> SharedCapacity:
        if name not in self._nodes:
            self._nodes[name] = SharedCapacity(self._clock, float(self._cpu), 1.0)
        return self._nodes[name]

    def on_node(self, node: str) -> list[str]:
        """VirtualMachines whose guests run on a node."""
        return [vm for vm, machine in self._running.items() if machine.node == node]

    async def burn(self, node: str, cpu_s: float) -> None:
        """Somebody else's work on a node's CPU."""
        await self._node(node).use(cpu_s)

    def power_off(self, vm: str) -> None:
        """The domain is gone."""
        self._running.pop(vm, None)
        task = self._tasks.pop(vm, None)
        if task is not None:
            task.cancel()

    def machine(self, vm: str) -> Machine | None:
        """The powered-on guest of a VirtualMachine."""
        return self._running.get(vm)

    def forget_disk(self, disk: str) -> None:
        """The disk was deleted."""
        self._booted.pop(disk, None)
        self.files.pop(disk, None)

    def dump(self) -> dict[str, Any]:
        """How often each disk has booted: what a later first boot depends on."""
        return dict(self._booted)

    def load(self, state: dict[str, Any]) -> None:
        """Take the content of a `dump`."""
        self._booted = dict(state)

    def dump_running(self) -> list[dict[str, Any]]:
        """The guests that are up, with what they hold on their disks (paths of `KEPT`)."""
        running = (machine for machine in self._running.values() if machine.sshd_ns is not None)
        return [asdict(machine) | {"files": self._kept(machine.disk)} for machine in running]

    def _kept(self, disk: str) -> dict[str, str]:
        files = self.files.get(disk, {})
        return {path: body.decode("latin-1") for path, body in files.items() if path.startswith(KEPT)}

    def load_running(self, state: list[dict[str, Any]]) -> None:
        """Take the content of a `dump_running`: these guests are up since then."""
        for saved in state:
            machine = Machine(**{name: value for name, value in saved.items() if name != "files"})
            self._running[machine.vm] = machine
            texts = saved["files"].items()
            self.files[machine.disk] = {path: text.encode("latin-1") for path, text in texts}
