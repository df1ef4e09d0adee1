"""No guests: a testbed whose VirtualMachines run nowhere, or a cluster whose guests are not reachable."""

from collections.abc import AsyncIterator, Iterable

from infra.errors import GuestError
from infra.guests.port import Answer, Target


class NoGuests:
    """Boot storms end at Running here; nothing inside a VM can be seen."""

    steps: tuple[str, ...] = ()

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
