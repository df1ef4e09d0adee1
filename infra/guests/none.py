"""No guests: a testbed whose VirtualMachines run nowhere, or a cluster whose guests are not reachable."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from infra.errors import GuestError
from infra.guests.port import Answer, Target
from infra.manifests import CloudInit


class NoGuests:
    """Boot storms end at Running here; nothing inside a VM can be seen."""

    steps: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """There is none."""
        return "no guests"

    @property
    def assigned(self) -> bool:
        """Nobody gives out addresses."""
        return False

    def cloud_init(self, vm: str) -> CloudInit | None:
        """Nothing is told."""
        return None

    def address_in(self, status: dict[str, Any]) -> str:
        """No address is of use."""
        return ""

    def check_room(self, vms: int) -> None:
        """Nobody is probed."""

    async def reach(self) -> None:
        """Nobody is reached."""

    def reason(self, vm: str) -> str | None:
        """Not known."""
        return None

    def arm(self, vms: Iterable[str]) -> None:
        """Nothing to probe."""

    def aim(self, target: Target) -> None:
        """Nothing to probe."""

    async def answers(self) -> AsyncIterator[list[Answer]]:
        """No answer ever comes."""
        nothing: list[list[Answer]] = []
        for batch in nothing:
            yield batch

    def disarm(self) -> None:
        """Nothing to stop."""

    def forget(self) -> None:
        """Nothing was kept."""

    async def run(self, vm: str, command: str, timeout_s: float) -> bytes:
        """Nothing can be run: always GuestError."""
        raise _unreachable(vm)

    async def put(self, vm: str, path: str, content: bytes) -> None:
        """Nothing can be written: always GuestError."""
        raise _unreachable(vm)

    async def fetch(self, vm: str, path: str) -> bytes:
        """Nothing can be read: always GuestError."""
        raise _unreachable(vm)


def _unreachable(vm: str) -> GuestError:
    return GuestError(f"guest {vm}: this world has no guests that can be reached")
