"""From rows to columns to Parquet parts: rows are checked as they come, the same rows give the same bytes."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.results.port import Row
from infra.results.spool import Columns

ROWS_PER_PART = 50_000


@dataclass(frozen=True, slots=True)
class Table:
    """A table's name and schema, with what checking rows needs worked out once."""

    name: str
    schema: pa.Schema
    kinds: Mapping[str, tuple[type, ...]]
    usual: Mapping[str, type]
    required: tuple[str, ...]


def table_of(name: str, schema: pa.Schema) -> Table:
    """Prepare a table; ValueError when its schema has a type that no record uses."""
    kinds = {field.name: _python_types(name, field) for field in schema}
    usual = {column: types[0] for column, types in kinds.items() if types[0] in {str, int, bool, float}}
    return Table(name, schema, kinds, usual, tuple(field.name for field in schema if not field.nullable))


def _python_types(table: str, field: pa.Field) -> tuple[type, ...]:
    if pa.types.is_string(field.type):
        return (str,)
    if pa.types.is_boolean(field.type):
        return (bool,)
    if pa.types.is_integer(field.type):
        return (int,)
    if pa.types.is_floating(field.type):
        return (float, int)
    if pa.types.is_timestamp(field.type):
        return (datetime,)
    if pa.types.is_list(field.type):
        return (list, tuple)
    raise ValueError(f"table {table}: column {field.name} has the type {field.type}, which no record uses")


def checked_rows(table: Table, rows: Iterable[Row], known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows with what is `known` filled in where the table has it and a row does not.

    Raises:
        ValueError: a mistake in the program, told with table and column: an unknown column, a wrong
            type, a number that is not finite, an instant without a zone, a null in a required column.
    """
    filled = {name: value for name, value in known.items() if name in table.kinds}
    whole = [{**filled, **row} for row in rows]
    for row in whole:
        _check_row(table, row)
    return whole


def _check_row(table: Table, row: Row) -> None:
    usual = table.usual
    for name, value in row.items():
        kind = type(value)
        # Nearly all of a batch's 150,000 values pass here.
        if kind is usual.get(name) and (kind is not float or math.isfinite(value)):
            continue
        if name not in table.kinds:
            raise ValueError(f"table {table.name}: column {name} is not in its schema")
        if value is not None:
            _check_value(f"table {table.name}: column {name}", table.kinds[name], value)
    for name in table.required:
        if row.get(name) is None:
            raise ValueError(f"table {table.name}: column {name} is required and is null")


def _check_value(where: str, kinds: tuple[type, ...], value: Any) -> None:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{where} takes {kinds[0].__name__}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} takes finite numbers, not {value!r}")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError(f"{where} takes instants with their time zone, not {value!r}")


def by_column(rows: Iterable[Row]) -> Columns:
    """Rows as columns: every column that one of them has, null where another has not."""
    rows = list(rows)
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}


def by_row(columns: Columns) -> Iterator[dict[str, Any]]:
    """The rows again."""
    yield from (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def extend(columns: Columns, more: Columns) -> None:
    """Add rows to others, that may lack some of their columns."""
    had, new = length(columns), length(more)
    for name in dict.fromkeys([*columns, *more]):
        columns.setdefault(name, [None] * had).extend(more.get(name) or [None] * new)


def cut(columns: Columns, *, last: bool) -> Iterator[Columns]:
    """Take whole parts off the front of `columns`, and what remains too if it is the `last` of them."""
    while length(columns) >= ROWS_PER_PART or (last and length(columns)):
        yield {name: values[:ROWS_PER_PART] for name, values in columns.items()}
        for values in columns.values():
            del values[:ROWS_PER_PART]


def length(columns: Columns) -> int:
    """How many rows."""
    return len(next(iter(columns.values()), []))


def parquet_of(schema: pa.Schema, columns: Columns) -> bytes:
    """One Parquet file of rows in their order, as they come from the spool (instants as text)."""
    nulls = [None] * length(columns)
    arrays = [_typed(columns.get(field.name, nulls), field) for field in schema]
    # Measured times are all different: a dictionary of them costs a fifth more bytes and twice the time.
    repeating = [field.name for field in schema if not pa.types.is_floating(field.type)]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, schema=schema)
    pq.write_table(table, sink, compression="zstd", use_dictionary=repeating)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _typed(values: list[Any], field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        values = [None if value is None else datetime.fromisoformat(value) for value in values]
    return pa.array(values, field.type)
