"""The seam to what runs inside a VirtualMachine: probe it, run in it, exchange files."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple, Protocol

from infra.manifests import CloudInit


class Target(NamedTuple):
    """One guest to probe: VirtualMachine name and, as soon as it is known, its address."""

    vm: str
    address: str


class Answer(NamedTuple):
    """What a probe saw: step is `tcp_open`, `ssh_banner` or `ssh_ready`.

    `not_yet_ns` is the last moment at which the step had been seen NOT to hold, `seen_ns` the
    first at which it held; both on the observer's clock.
    """

    vm: str
    step: str
    not_yet_ns: int
    seen_ns: int


class Guests(Protocol):
    """Guests of one run."""

    steps: tuple[str, ...]
    """Which of tcp_open, ssh_banner, ssh_ready this world can observe; () when it has no guests."""

    @property
    def path(self) -> str:
        """The way to a guest's SSH port: a key by which runs are compared."""
        ...

    @property
    def assigned(self) -> bool:
        """Whether guests have the addresses that `cloud_init` gives them, so that none is waited for."""
        ...

    def cloud_init(self, vm: str) -> CloudInit | None:
        """What the guest of a VM that is made now must be told at its first boot; None: nothing."""
        ...

    def address_in(self, status: dict[str, Any]) -> str:
        """The address to probe that a VMI's status states; "" while there is none."""
        ...

    def check_room(self, vms: int) -> None:
        """Raise InvalidRun when so many guests cannot be probed from here."""
        ...

    async def reach(self) -> None:
        """Raise InvalidRun when no guest at all can be reached from here."""
        ...

    def reason(self, vm: str) -> str | None:
        """Why a guest of the last storm did not show every step, as the prober saw it; None: not known."""
        ...

    def arm(self, vms: Iterable[str]) -> None:
        """Make ready to probe these VirtualMachines; before a batch is released."""
        ...

    def aim(self, target: Target) -> None:
        """The address of an armed guest is known (or changed): probe there from now on."""
        ...

    def answers(self) -> AsyncIterator[list[Answer]]:
        """Batches of answers as they come, until `disarm`."""
        ...

    def disarm(self) -> None:
        """Stop probing; ends `answers`."""
        ...

    def forget(self) -> None:
        """No guest of the run is left: drop what was kept on this machine to reach them."""
        ...

    async def run(self, vm: str, command: str, timeout_s: float) -> bytes:
        """Run a command as an authenticated user, return its standard output; GuestError."""
        ...

    async def put(self, vm: str, path: str, content: bytes) -> None:
        """Write a file in the guest, whole or not at all; GuestError."""
        ...

    async def fetch(self, vm: str, path: str) -> bytes:
        """Read a file of the guest; GuestError (also when there is none)."""
        ...
