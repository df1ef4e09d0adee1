"""PURE. Frames as tables of the report: text for people, the raw values for sorting and as CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import polars as pl

from tasks.analysis.wording import beyond, human_duration

LIMITED = frozenset({"end_to_end_s", "p50_s", "p90_s", "p95_s", "p99_s", "max_s", "p5_s", "median_s"})
"""Columns whose null means "beyond the limit"; elsewhere a null is "not observed"."""

NOT_OBSERVED = "\N{EN DASH}"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Cell(NamedTuple):
    """Text, what to sort by, and whether it is right-aligned."""

    text: str
    value: str
    number: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report.

    `headings` pairs each with whether its column holds numbers; `unobserved` names the columns left
    out because no row has a value (the CSV has them); `source` is the stored table behind the rows.
    """

    name: str
    headings: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[Cell]]
    unobserved: Sequence[str]
    csv_uri: str
    source: str


def table(name: str, frame: pl.DataFrame, source: str) -> Table:
    """All rows of a frame; `> limit` for nulls of `LIMITED` columns (needs `limit_s` beside them)."""
    limited = LIMITED if "limit_s" in frame.columns else frozenset[str]()
    seen = [column for column in frame.columns if column in limited or frame.get_column(column).count()]
    rows = [[_cell(column, row, limited) for column in seen] for row in frame.to_dicts()]
    headings = [(_heading(column), frame.schema[column].is_numeric()) for column in seen]
    unobserved = [_heading(column) for column in frame.columns if column not in seen]
    return Table(name, headings, rows, unobserved, csv_uri(frame), source)


def csv_uri(frame: pl.DataFrame) -> str:
    """The frame as a data: address of CSV in machine units; nulls are empty."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    flat = frame.with_columns(pl.col(name).list.join("; ") for name in lists)
    texts = [name for name, kind in flat.schema.items() if kind == pl.String]
    safe = flat.with_columns(_without_formulas(name) for name in texts)
    return "data:text/csv;charset=utf-8," + quote(safe.write_csv())


def _without_formulas(name: str) -> pl.Expr:
    """A spreadsheet runs a cell that starts with one of these signs; a quote in front makes it text."""
    risky = pl.any_horizontal(pl.col(name).str.starts_with(sign) for sign in _FORMULA)
    return pl.when(risky).then("'" + pl.col(name)).otherwise(pl.col(name)).alias(name)


def _heading(column: str) -> str:
    bare = column if column.endswith("_per_s") else column.removesuffix("_s")
    return bare.replace("_", " ")


def _cell(column: str, row: Mapping[str, Any], limited: frozenset[str]) -> Cell:
    value = row[column]
    if value is None:
        known = column in limited and row.get("step", "") is not None
        return Cell(beyond(row["limit_s"]), "Infinity", True) if known else Cell(NOT_OBSERVED, "", True)
    if isinstance(value, bool | str):
        return Cell(str(value), str(value), False)
    if isinstance(value, int | float):
        return Cell(_number(column, value), repr(value), True)
    text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    return Cell(text, text, False)


def _number(column: str, value: float) -> str:
    if column.endswith("_s") and not column.endswith("_per_s"):
        return human_duration(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
