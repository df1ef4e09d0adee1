"""The store of a run for the processes that take its steps: one process uploads, the others ask it.

So there is one outbox, one order of writes and one view of what is stored, however many processes measure.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from infra.errors import StageError, VirtscaleError
from infra.results.active import ACTIVE
from infra.results.port import ObjectStore
from infra.results.uploads import UploadingStore


class Ask(NamedTuple):
    """A call of the lent store."""

    number: int
    method: str
    arguments: tuple[Any, ...]


class Reply(NamedTuple):
    """What became of a call: an answer, or an error by its class and text."""

    number: int
    answer: Any
    error: type[VirtscaleError] | None = None


Exchange = Callable[[Ask], Reply]


def lent_address(store: ObjectStore) -> str:
    """The address that other processes open the store by; "" for a folder, which each opens by itself."""
    return store.address("") if isinstance(store, UploadingStore) else ""


def replied(store: ObjectStore, ask: Ask) -> Reply:
    """Do what was asked."""
    try:
        return Reply(ask.number, getattr(store, ask.method)(*ask.arguments))
    except VirtscaleError as error:
        return Reply(ask.number, str(error), type(error))


@contextmanager
def borrowed(address: str, exchange: Exchange) -> Iterator[None]:
    """For the length of the block, the store of that address is asked for by `exchange`; "": none is."""
    if address:
        ACTIVE[address] = LentStore(address, exchange)
    try:
        yield
    finally:
        ACTIVE.pop(address, None)


class LentStore:
    """An `infra.results.port.ObjectStore` that another process has open; for one thread."""

    parallel = 1

    def __init__(self, address: str, exchange: Exchange) -> None:
        self._address, self._exchange = address, exchange
        self._number = 0

    def put(self, key: str, body: bytes) -> None:
        """Write whole, replacing an older one."""
        self._ask("put", key, body)

    def put_new(self, key: str, body: bytes) -> bool:
        """Write only if the key is free."""
        won: bool = self._ask("put_new", key, body)
        return won

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None when there is none."""
        body: bytes | None = self._ask("get", key)
        return body

    def keys(self, prefix: str) -> list[str]:
        """All keys that start with `prefix`, sorted."""
        found: list[str] = self._ask("keys", prefix)
        return found

    def written(self, prefix: str) -> list[tuple[datetime, str]]:
        """All keys that start with `prefix`, each with when it was written last, oldest first."""
        found: list[tuple[datetime, str]] = self._ask("written", prefix)
        return found

    def delete(self, key: str) -> None:
        """Remove; no error when it is gone already."""
        self._ask("delete", key)

    def release(self, key: str, path: Path) -> None:
        """Have a file of this machine removed as soon as the object is safe without it."""
        self._ask("release", key, path)

    def address(self, key: str) -> str:
        """The object's address in the store itself."""
        return self._address + key

    def scan_options(self) -> dict[str, str]:
        """As the store itself."""
        options: dict[str, str] = self._ask("scan_options")
        return options

    def _ask(self, method: str, *arguments: Any) -> Any:
        self._number += 1
        try:
            reply = self._exchange(Ask(self._number, method, arguments))
        except (EOFError, OSError) as error:
            raise StageError("the process that uploads has ended; run the same command again") from error
        if reply.error is not None:
            raise reply.error(reply.answer)
        return reply.answer
