"""From rows to Parquet parts: rows are checked as they come, the same rows give the same bytes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.results.port import Row

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


def cut(rows: list[dict[str, Any]], *, last: bool) -> Iterator[list[dict[str, Any]]]:
    """Take whole parts off the front of `rows`, and what remains too if it is the `last` of them."""
    while len(rows) >= ROWS_PER_PART or (last and rows):
        yield rows[:ROWS_PER_PART]
        del rows[:ROWS_PER_PART]


def parquet_of(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """One Parquet file of `rows` in their order, as they come from the spool (instants as text)."""
    # As structs: Arrow takes the rows apart several times as fast as Python does.
    fields = [pa.field(field.name, _spooled_type(field)) for field in schema]
    columns = pa.array(rows, pa.struct(fields)).flatten()
    columns = [_typed(column, field) for column, field in zip(columns, schema, strict=True)]
    # Measured times are all different: a dictionary of them costs a fifth more bytes and twice the time.
    repeating = [field.name for field in schema if not pa.types.is_floating(field.type)]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=schema)
    pq.write_table(table, sink, compression="zstd", use_dictionary=repeating)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _spooled_type(field: pa.Field) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(field.type) else field.type


def _typed(column: pa.Array, field: pa.Field) -> pa.Array:
    if not pa.types.is_timestamp(field.type):
        return column
    values = column.to_pylist()
    instants = [None if value is None else datetime.fromisoformat(value) for value in values]
    return pa.array(instants, field.type)
