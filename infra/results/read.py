"""Reading results: only what a commit names, checked against it, typed by the schema of today."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from infra.errors import StoreError
from infra.results.commits import read_commits
from infra.results.fetch import fetch
from infra.results.port import Cell, Commit, ObjectStore

if TYPE_CHECKING:
    import polars as pl

Which = Literal["last_complete", "all"]


def scan(
    store: ObjectStore, run_id: str, table: str, schema: pa.Schema, which: Which = "last_complete"
) -> "pl.DataFrame":
    """A table of a run in the order of commit, with `run_id` as its first column.

    `which` is the last complete attempt of every cell, or all attempts, those that were interrupted
    included. Without any row it is an empty frame of the same columns and types.

    Raises:
        StoreError: a part is gone or damaged, or was written by a newer version.
    """
    commits = read_commits(store, run_id)
    chosen = last_complete(commits) if which == "last_complete" else commits
    return _frame(store, run_id, chosen, (table, schema))


def scan_tables(
    store: ObjectStore, run_id: str, schemas: Mapping[str, pa.Schema]
) -> dict[str, "pl.DataFrame"]:
    """Several tables of a run, last complete attempts only, each as `scan` gives it; commits are read once.

    Raises:
        StoreError: a part is gone or damaged, or was written by a newer version.
    """
    chosen = last_complete(read_commits(store, run_id))
    return {name: _frame(store, run_id, chosen, (name, schema)) for name, schema in schemas.items()}


def _frame(
    store: ObjectStore, run_id: str, commits: Iterable[Commit], of: tuple[str, pa.Schema]
) -> "pl.DataFrame":
    # Imported here: what only measures needs no frames, and is one of several processes.
    import polars as pl

    table, schema = of
    parts = {part[0]: part for commit in commits for part in commit.parts.get(table, [])}
    bodies = fetch(store, list(parts))
    tables = [_conformed(store, parts[key], schema, body) for key, body in bodies]
    frame = pl.DataFrame(pa.concat_tables([schema.empty_table(), *tables]))
    return frame.select(pl.lit(run_id, pl.String).alias("run_id"), *frame.columns)


def last_complete(commits: Iterable[Commit]) -> list[Commit]:
    """The last complete attempt of every cell, in the order of commit."""
    best: dict[Cell, Commit] = {}
    for commit in commits:
        if commit.complete and (commit.cell not in best or best[commit.cell].attempt < commit.attempt):
            best[commit.cell] = commit
    return sorted(best.values(), key=lambda each: each.sequence)


def read_part(store: ObjectStore, part: tuple[str, int, str]) -> pa.Table:
    """One part, checked against the SHA-256 in its commit.

    Raises:
        StoreError: it is gone or damaged.
    """
    return _checked(store, part, store.get(part[0]))


def check_parts(store: ObjectStore, run_id: str) -> None:
    """Nothing when every part of a run's last complete attempts is what its commit says.

    Raises:
        StoreError: one is gone or damaged.
    """
    commits = last_complete(read_commits(store, run_id))
    parts = {part[0]: part for commit in commits for table in commit.parts.values() for part in table}
    for key, body in fetch(store, list(parts)):
        _whole(store, parts[key], body)


def _checked(store: ObjectStore, part: tuple[str, int, str], body: bytes | None) -> pa.Table:
    # In this thread alone: a worker of Arrow's that lets go of `body` while Python ends aborts the process.
    whole = pa.BufferReader(_whole(store, part, body))
    return pq.ParquetFile(whole, pre_buffer=False).read(use_threads=False)


def _whole(store: ObjectStore, part: tuple[str, int, str], body: bytes | None) -> bytes:
    key, _, sha256 = part
    if body is None:
        raise StoreError(
            f"store {store.address(key)}: this part is gone; put back a copy of it, or redo its batch"
        )
    if hashlib.sha256(body).hexdigest() != sha256:
        raise StoreError(
            f"store {store.address(key)}: this part is damaged (its SHA-256 is not that of its commit); "
            "put back a copy of it, or redo its batch"
        )
    return body


def _conformed(
    store: ObjectStore, part: tuple[str, int, str], schema: pa.Schema, body: bytes | None
) -> pa.Table:
    """The part with the columns of `schema`: those that its version lacked are null."""
    table = _checked(store, part, body)
    if _version(table.schema) > _version(schema):
        raise StoreError(
            f"store {store.address(part[0])}: a newer virtscale wrote this part "
            f"(schema {_version(table.schema)}, this one knows {_version(schema)}); use that version"
        )
    known = set(table.column_names)
    columns = [
        _cast(table[field.name], field.type) if field.name in known else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _version(schema: pa.Schema) -> int:
    return int((schema.metadata or {}).get(b"schema_version", b"1"))
