"""The ledger: which objects a run set out to create, so that nothing else is ever deleted."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from infra.results.manifest import OBJECTS
from infra.results.parts import by_row
from infra.results.port import Commit, ObjectName, ObjectStore
from infra.results.read import read_part
from infra.results.spool import read_spool

COLUMNS = ["kind", "namespace", "name", "uid"]


def read_ledger(store: ObjectStore, commits: Iterable[Commit], spool_dir: Path) -> dict[ObjectName, set[str]]:
    """Objects of all commits and of every spool, each with its known UIDs, {""} if none is known.

    Raises:
        StoreError: a part or a spool cannot be read.
    """
    # Spools first: one that is committed in between is then read twice, never missed.
    rows = [*_spooled(spool_dir), *_committed(store, commits)]
    ledger: dict[ObjectName, set[str]] = {}
    for row in rows:
        ledger.setdefault((row["kind"], row.get("namespace") or "", row["name"]), set()).add(
            row.get("uid") or ""
        )
    return {name: uids - {""} or {""} for name, uids in ledger.items()}


def _spooled(spool_dir: Path) -> Iterator[dict[str, Any]]:
    for path in sorted([*spool_dir.glob("*.spool"), *spool_dir.glob("*.lost")]):
        for table, rows in read_spool(path):
            if table == OBJECTS:
                yield from by_row(rows)


def _committed(store: ObjectStore, commits: Iterable[Commit]) -> Iterator[dict[str, Any]]:
    for commit in commits:
        for part in commit.parts.get(OBJECTS, []):
            yield from read_part(store, part).select(COLUMNS).to_pylist()
