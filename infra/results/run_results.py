"""Results of one run: attempts that are spooled, then stored as parts, then committed by one put."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from infra.errors import InUse, StateLost
from infra.results.commits import (
    attempt_name,
    cell_prefix,
    commit_key,
    decode,
    encode,
    part_prefix,
    read_commits,
    state_key,
    state_prefix,
)
from infra.results.ledger import read_ledger
from infra.results.manifest import check_run_id
from infra.results.parts import Table, by_column, checked_rows, cut, extend, length, parquet_of, table_of
from infra.results.port import Cell, Commit, ObjectName, ObjectStore, Row
from infra.results.read import last_complete
from infra.results.room import room_for
from infra.results.spool import Columns, Spool, create_spool, read_spool, reopen_spool

ENDED_AT = "ended_at"
STATES_KEPT = 2
"""Of each stage: every measured stage goes on from a state of its own."""


def open_results(
    store: ObjectStore, run_id: str, world: str, schemas: Mapping[str, pa.Schema], spool_dir: Path
) -> "RunResults":
    """Open the results of a run; nothing is written before an attempt begins.

    `schemas` are the tables that rows may be added to; `spool_dir` is local to this machine
    (`infra.results.open.spool_folder`).

    Raises:
        ProfileError: `run_id` is no run id.
    """
    tables = {name: table_of(name, schema) for name, schema in schemas.items()}
    return RunResults(check_run_id(run_id), store, world, tables, spool_dir)


@dataclass(eq=False)
class RunResults:
    """An `infra.results.port.Results`."""

    run_id: str
    store: ObjectStore
    world: str
    tables: Mapping[str, Table]
    spool_dir: Path
    lineage: frozenset[str] = frozenset()
    """Stages, or `<stage>/<cell>`, whose commits tell of this world's past; empty: all."""
    wall: Callable[[], datetime] | None = None
    """The world's clock: a commit's summary says when it was made there."""
    sure: Callable[[], None] | None = None
    """Raises when another process may have worked on the cluster since the attempt began."""
    _seen: dict[str, Commit] = field(default_factory=dict)
    _open: dict[Cell, "RunAttempt"] = field(default_factory=dict)

    def begin(self, cell: Cell) -> "RunAttempt":
        """Open the next attempt, after committing what killed attempts of the cell left.

        Raises:
            StoreError: another living process is at work on this cell, or its rows would not fit.
        """
        _check_cell(cell)
        if cell in self._open:
            self._open.pop(cell).spool.close()
        self._recover(cell)
        number = 1 + max(self._numbers(cell), default=0)
        with room_for(self.spool_dir, cell) as room:
            spool = create_spool(self.spool_path(cell, number), room)
        attempt = self._open[cell] = RunAttempt(self, cell, number, spool)
        return attempt

    def commits(self) -> list[Commit]:
        """All commits of the run in the order of commit."""
        return read_commits(self.store, self.run_id, self._seen)

    def last_complete(self, cell: Cell) -> Commit | None:
        """The complete attempt of the cell with the highest number."""
        return next((each for each in last_complete(self.commits()) if each.cell == cell), None)

    def past(self) -> list[Commit]:
        """The commits that tell of this world's past, in the order of commit."""
        lineage = self.lineage
        if not lineage:
            return self.commits()
        names = [(each, each.cell.stage, f"{each.cell.stage}/{each.cell.cell}") for each in self.commits()]
        return [each for each, stage, cell in names if stage in lineage or cell in lineage]

    def last_state(self) -> bytes | None:
        """The state stored with the newest commit of this world's past that has one.

        Raises:
            StateLost: that state is gone, or is not the one of that commit.
        """
        commit = next((each for each in reversed(self.past()) if each.state), None)
        if commit is None:
            return None
        body = self.store.get(commit.state)
        if body is None or hashlib.sha256(body).hexdigest() != commit.state_sha256:
            raise StateLost(
                f"store {self.store.address(commit.state)}: the virtual cluster's state is gone or damaged, "
                "and the cluster with it; begin again with another --run-id"
            )
        return body

    def ledger(self) -> dict[ObjectName, set[str]]:
        """What the run set out to create, committed or only spooled."""
        return read_ledger(self.store, self.commits(), self.spool_dir)

    def close(self) -> None:
        """Let go of the attempts that were not committed."""
        for attempt in self._open.values():
            attempt.spool.close()
        self._open.clear()

    def spool_path(self, cell: Cell, attempt: int) -> Path:
        """Where an attempt is spooled."""
        return self.spool_dir / f"{attempt_name(cell, attempt)}.spool"

    def settled(self, attempt: "RunAttempt") -> None:
        """Forget an attempt that was committed (or lost) and drop the states that nobody needs any more."""
        if self._open.get(attempt.cell) is attempt:
            del self._open[attempt.cell]
        line = self._line(attempt.cell)
        same = [each for each in self.commits() if each.state and self._line(each.cell) == line]
        old = {each.state for each in same[:-STATES_KEPT]}
        for key in self.store.keys(state_prefix(self.run_id)):
            if key in old:
                self.store.delete(key)

    def _line(self, cell: Cell) -> str:
        """What a state goes on from: a stage, or one cell of it where that is a lineage of its own."""
        own = f"{cell.stage}/{cell.cell}"
        return own if own in self.lineage else cell.stage

    def _recover(self, cell: Cell) -> None:
        committed = {each.attempt for each in self.commits() if each.cell == cell}
        for number in self._spooled(cell, ".spool"):
            spool = reopen_spool(self.spool_path(cell, number))
            if spool is None:
                continue
            if number in committed:
                self.store.release(commit_key(self.run_id, cell, number), spool.path)
                spool.close()
            elif not any(rows for _, rows in read_spool(spool.path)):
                spool.remove()
            else:
                RunAttempt(self, cell, number, spool).commit({"interrupted": True}, complete=False)

    def _numbers(self, cell: Cell) -> Iterator[int]:
        """Every attempt number that somebody has used: a part without commit is one of a writer elsewhere."""
        yield from (each.attempt for each in self.commits() if each.cell == cell)
        yield from self._spooled(cell, ".spool")
        yield from self._spooled(cell, ".lost")
        for table in self.tables:
            prefix = part_prefix(table, self.run_id, cell_prefix(cell))
            rest = (key.removeprefix(prefix).partition("-") for key in self.store.keys(prefix))
            yield from (int(number) for number, _, part in rest if number.isdecimal() and _is_part(part))

    def _spooled(self, cell: Cell, suffix: str) -> list[int]:
        prefix = cell_prefix(cell)
        names = (path.name.removesuffix(suffix) for path in self.spool_dir.glob(f"{prefix}*{suffix}"))
        numbers = (name.removeprefix(prefix) for name in names)
        return sorted(int(number) for number in numbers if number.isdecimal())


@dataclass(eq=False)
class RunAttempt:
    """An `infra.results.port.Attempt`."""

    results: RunResults
    cell: Cell
    number: int
    spool: Spool

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Check and spool rows; they survive this process when this returns.

        Raises:
            ValueError: a mistake in the program: no such table, or a row that does not fit it.
            StoreError: the spool cannot be written.
        """
        if table not in self.results.tables:
            raise ValueError(f"table {table}: there is no such table")
        known = {"world": self.results.world, "repeat": self.cell.repeat, "attempt": self.number}
        checked = checked_rows(self.results.tables[table], rows, known)
        if checked:
            self.spool.append(table, by_column(checked))

    def flush(self) -> None:
        """Return when all rows are on the disk itself."""
        self.spool.flush()

    def commit(self, summary: Mapping[str, Any], *, complete: bool = True, state: bytes = b"") -> Commit:
        """Store parts, then the state, then the commit by one conditional put; removes the spool.

        Raises:
            StoreError: another writer was first; the spool is set aside for the ledger.
            VirtscaleError: the cluster was not its run's own; nothing is stored.
        """
        if complete and self.results.sure is not None:
            self.results.sure()
        self.spool.end()
        # Beside the upload: the store's answer, too, makes rows safe.
        self.spool.flush_soon()
        results = self.results
        parts = self._put_parts()
        if results.wall is not None:
            summary = {**summary, ENDED_AT: results.wall().isoformat()}
        after = self._put_state(state) if state else ""
        sha256 = hashlib.sha256(state).hexdigest() if state else ""
        before = len(results.commits())
        body = encode(Commit(self.cell, self.number, complete, parts, summary, after, before, sha256))
        key = commit_key(results.run_id, self.cell, self.number)
        if not results.store.put_new(key, body):
            raise self._lost()
        # The lock is let go after that, never before.
        results.store.release(key, self.spool.path)
        self.spool.close()
        results.settled(self)
        return decode(body)

    def _put_parts(self) -> dict[str, list[tuple[str, int, str]]]:
        waiting: dict[str, Columns] = {}
        parts: dict[str, list[tuple[str, int, str]]] = {}
        for table, rows in read_spool(self.spool.path):
            extend(waiting.setdefault(table, {}), rows)
            self._put_full(table, waiting[table], parts, last=False)
        for table in sorted(waiting):
            self._put_full(table, waiting[table], parts, last=True)
        return parts

    def _put_full(
        self,
        table: str,
        waiting: Columns,
        parts: dict[str, list[tuple[str, int, str]]],
        *,
        last: bool,
    ) -> None:
        for rows in cut(waiting, last=last):
            stored = parts.setdefault(table, [])
            name = f"{attempt_name(self.cell, self.number)}-{len(stored)}.parquet"
            key = part_prefix(table, self.results.run_id, name)
            body = parquet_of(self._schema(table), rows)
            self._put_once(key, body)
            stored.append((key, length(rows), hashlib.sha256(body).hexdigest()))

    def _schema(self, table: str) -> pa.Schema:
        return self.results.tables[table].schema

    def _put_state(self, state: bytes) -> str:
        key = state_key(self.results.run_id, self.cell, self.number)
        self._put_once(key, state)
        return key

    def _put_once(self, key: str, body: bytes) -> None:
        # Never replaced: a writer that loses the commit must not have changed the winner's bytes.
        store = self.results.store
        if not store.put_new(key, body) and store.get(key) != body:
            raise self._lost()

    def _lost(self) -> InUse:
        self.spool.set_aside()
        self.results.settled(self)
        what = f"{self.cell.stage} {self.cell.cell} attempt {self.number} of run {self.results.run_id}"
        return InUse(
            f"store {self.results.store.address('')}: another process committed {what} first; "
            "wait until it has ended and start this one again, or choose another --run-id"
        )


def _check_cell(cell: Cell) -> None:
    words = f"{cell.stage}{cell.cell}".replace("-", "").replace("_", "")
    if cell.repeat < 1 or not cell.stage or not cell.cell or not words.isalnum():
        raise ValueError(f"{cell}: stage and cell are made of letters, digits, - and _; repeat is 1 or more")


def _is_part(rest: str) -> bool:
    return rest.removesuffix(".parquet").isdecimal()
