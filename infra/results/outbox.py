"""What a store does not have yet, on this machine's disk: bodies by key, and one entry per write that waits.

    <folder>/bodies/<key>          what was written last under a key
    <folder>/pending/<n>.json      a write that the store may not have seen, in the order of writing

Bodies are also what this process reads back; only those that an entry names outlive it.
"""

import os
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import orjson

from infra.errors import StoreError
from infra.results.commits import attempt_of
from infra.results.folder import store_errors

Kind = Literal["put", "put_new", "delete"]


@dataclass(slots=True, eq=False)
class Write:
    """One write. `writer` marks a conditional one, so that it is known again after our own death.

    `kept`: it has an entry on the disk. `awaited`: somebody waits for it. `relied_on`: nobody did, and the
    run has gone on from it; `frees` is the spool that holds its rows until then. `done`: the store has
    answered; `won` is what it said.
    """

    number: int
    kind: Kind
    key: str
    writer: str = field(default_factory=lambda: secrets.token_hex(8))
    kept: bool = False
    awaited: bool = False
    relied_on: bool = False
    frees: Path | None = None
    done: bool = False
    won: bool = True

    @property
    def attempt(self) -> str:
        """The attempt that it is a part of."""
        return attempt_of(self.key)

    @property
    def decides(self) -> bool:
        """Whether it is sent after all before it: it makes others visible, replaces, or removes."""
        return self.kind != "put_new" or self.key.startswith(("_commits/", "_ledger/", "_manifests/"))

    @property
    def commits(self) -> bool:
        """Whether it makes an attempt visible."""
        return self.kind == "put_new" and self.key.startswith("_commits/")

    def free(self) -> None:
        """Remove the spool: its rows are safe without it."""
        if self.frees is not None:
            self.frees.unlink(missing_ok=True)


class Outbox:
    """The folder; used by one process at a time (the run's lock)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bodies = folder / "bodies"
        self._pending = folder / "pending"

    def waiting(self) -> list[Write]:
        """The writes that an earlier process left, in their order.

        Raises:
            StoreError: an entry is damaged.
        """
        found = sorted(self._pending.glob("*.json")) if self._pending.is_dir() else []
        return [_entry(path) for path in found]

    def start_afresh(self) -> None:
        """Drop the bodies of an earlier process: nothing waits any more."""
        shutil.rmtree(self._bodies, ignore_errors=True)

    def hold(self, key: str, body: bytes) -> None:
        """Have a body at hand; on the disk itself only after `keep`."""
        path = self._body(key)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with store_errors(path, "written"):
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(body)
            draft.replace(path)

    def held(self, key: str) -> bytes:
        """A body that was held."""
        with store_errors(self._body(key), "read"):
            return self._body(key).read_bytes()

    def drop(self, key: str) -> None:
        """Forget a body."""
        self._body(key).unlink(missing_ok=True)

    def keep(self, writes: Iterable[Write]) -> None:
        """Return when these writes and their bodies survive this machine's death."""
        with store_errors(self.folder, "written"):
            self._pending.mkdir(parents=True, exist_ok=True)
            for write in writes:
                if write.kind != "delete":
                    _sync(self._body(write.key))
                entry = {name: asdict(write)[name] for name in ("number", "kind", "key", "writer")}
                draft = self._pending / f".{write.number}.draft"
                draft.write_bytes(orjson.dumps(entry))
                _sync(draft)
                draft.replace(self._pending / f"{write.number:08}.json")
                write.kept = True
            _sync(self._pending)

    def sent(self, write: Write) -> None:
        """The store has it."""
        if write.kept:
            (self._pending / f"{write.number:08}.json").unlink(missing_ok=True)

    def set_aside(self) -> Path:
        """Keep the waiting writes for a person to look at, in the folder that is returned."""
        aside = self.folder.with_name(f"{self.folder.name}-lost-{secrets.token_hex(4)}")
        with store_errors(self.folder, "written"):
            return self.folder.rename(aside)

    def remove(self) -> None:
        """Everything is in the store."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _body(self, key: str) -> Path:
        return self._bodies / key


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entry(path: Path) -> Write:
    try:
        return Write(**orjson.loads(path.read_bytes()), kept=True)
    except (orjson.JSONDecodeError, TypeError, OSError) as error:
        raise StoreError(
            f"spool {path}: this entry is damaged; put back a copy of it, or delete it"
        ) from error
