"""The seam to other processes that take shares of a batch, on this machine or on others."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from infra.clock import Clock
from infra.errors import StageError

T = TypeVar("T")


class WorkerGone(StageError):
    """A process that took a share does not answer any more."""


class Worker(Protocol):
    """One other process; it takes one share at a time."""

    async def begin(self, share: Any) -> None:
        """Have a share taken; returns at once."""
        ...

    async def ask(self, what: Callable[..., T], *arguments: Any) -> T:
        """Call a function in that process, beside what it does; WorkerGone."""
        ...

    async def found(self) -> Any:
        """What became of the share, once it is done; its own error, or WorkerGone."""
        ...

    async def forget(self) -> None:
        """Nobody waits for the share any more."""
        ...


class Workers(Protocol):
    """The processes that a run may use beside its own."""

    shards: int
    """The most shares of a batch."""

    async def free(self, n: int) -> list[Worker]:
        """So many processes, each a different one; StageError when there are fewer."""
        ...


class Shard(Protocol):
    """In a process that takes a share: which one, and when it may begin."""

    number: int
    slots: tuple[int, ...]

    async def turn(self, clock: Clock, brake: Any) -> int:
        """Everything is ready: wait until it is time; the moment of the release on this process's clock."""
        ...
