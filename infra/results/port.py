"""The seam to stored results: one object store port, and the commit protocol on top of it.

Layout (DESIGN.md, Results), keys relative to the store:

    <table>/run_id=<id>/<stage>-<cell>-<repeat>-<attempt>-<n>.parquet     parts
    _commits/<id>/<stage>-<cell>-<repeat>-<attempt>.json                  what makes parts visible
    _states/<id>/<stage>-<cell>-<repeat>-<attempt>.json.zst               virtual cluster after it
    _manifests/<id>.json                                                  the run
    _summaries/<id>.json                                                  its summaries, when it has ended
    reports/<id>/report.html

A batch is visible when its commit exists, wholly or not at all: the commit is the one
conditional put. Readers look at commits only, never at the folder of a table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Row = Mapping[str, Any]
"""One record: column name to plain Python value; a column left out is null."""

ObjectName = tuple[str, str, str]
"""Kind, namespace ("" for a cluster-wide object) and name."""


class ObjectStore(Protocol):
    """A folder or a bucket; every error is an `infra.errors.StoreError` of one clear line.

    `parallel`: how many reads at a time are worth their threads; 1 where a read waits for nobody.
    """

    parallel: int

    def put(self, key: str, body: bytes) -> None:
        """Write an object whole (never half visible), replacing an older one."""
        ...

    def put_new(self, key: str, body: bytes) -> bool:
        """Write only if the key is free, atomically; False when somebody was first."""
        ...

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None when there is none."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """All keys that start with `prefix`, sorted."""
        ...

    def written(self, prefix: str) -> list[tuple[datetime, str]]:
        """All keys that start with `prefix`, each with when it was written last, oldest first."""
        ...

    def delete(self, key: str) -> None:
        """Remove; no error when it is gone already."""
        ...

    def release(self, key: str, path: Path) -> None:
        """Remove a file of this machine as soon as `key`, which was written, is safe without it."""
        ...

    def address(self, key: str) -> str:
        """Where a person finds it: a path or an s3:// address."""
        ...

    def scan_options(self) -> dict[str, str]:
        """What polars needs besides the address to read it itself; secrets among it, so never print it."""
        ...


class Cell(NamedTuple):
    """One unit of commit: `deploy`, `400`, repeat 1. `cell` is "0" for a stage without batches."""

    stage: str
    cell: str
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed attempt. `complete` is False for what a killed or cancelled attempt left.

    `parts` maps table to [(key, rows, sha256)]; `summary` is the batch's headline as plain JSON;
    `state` is the key of the virtual cluster's state after it, or "", and `state_sha256` that of its
    bytes. `sequence` is the number of commits of the run before it.
    """

    cell: Cell
    attempt: int
    complete: bool
    parts: Mapping[str, list[tuple[str, int, str]]]
    summary: Mapping[str, Any]
    state: str
    sequence: int = 0
    state_sha256: str = ""


class Attempt(Protocol):
    """The open attempt of a cell: rows are on disk (spool) when `add` returns."""

    cell: Cell
    number: int

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Spool rows; `world`, `repeat` and `attempt` are filled in where the table has them."""
        ...

    def flush(self) -> None:
        """Return when all rows are on the disk itself: call it after adding intents, before creating."""
        ...

    def commit(self, summary: Mapping[str, Any], *, complete: bool = True, state: bytes = b"") -> Commit:
        """Write parts, then the state, then the commit by one conditional put; empties the spool.

        Raises StoreError when another writer committed this attempt first.
        """
        ...


class Results(Protocol):
    """Results of one run in one store.

    `sure` is called before a complete attempt is committed, and raises when its cluster was not its own.
    """

    run_id: str
    store: ObjectStore
    sure: Callable[[], None] | None

    def begin(self, cell: Cell) -> Attempt:
        """Open the next attempt (last committed or spooled + 1).

        What a killed attempt of the same cell left in the spool is committed first, as incomplete.
        """
        ...

    def commits(self) -> list[Commit]:
        """All commits of the run, oldest first by (order of commit)."""
        ...

    def last_complete(self, cell: Cell) -> Commit | None:
        """The last complete attempt of a cell; what decides that it is done."""
        ...

    def past(self) -> list[Commit]:
        """The commits that tell of this world's past: all, or those of a virtual cluster's lineage."""
        ...

    def last_state(self) -> bytes | None:
        """The virtual cluster's state after the newest commit of its past that has one.

        Raises StoreError when that is gone, or not the commit's.
        """
        ...

    def ledger(self) -> dict[ObjectName, set[str]]:
        """What the run set out to create: (kind, namespace, name) to its known UIDs; {""} if none is known.

        Read from the committed parts of `objects`, of all attempts, and from every spool of the run,
        so that what a killed process created is in it. The namespace of a cluster-wide object is "".
        """
        ...

    def close(self) -> None:
        """Let go of attempts that were not committed; their rows stay, and the next `begin` finds them."""
        ...
