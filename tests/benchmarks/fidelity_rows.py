"""One published figure against its measured one, and how a table of them is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Figure(NamedTuple):
    """What somebody published, or what a mechanism makes that is now off; `preset` is the model's."""

    what: str
    published: str
    source: str
    preset: str


@dataclass(frozen=True)
class Row:
    """One line of the table; `tolerance` is what `measured` has to be."""

    figure: Figure
    measured: str
    tolerance: str
    passed: bool


def between(figure: Figure, measured: float | None, low: float, high: float, unit: str = "") -> Row:
    """A number with two bounds, both allowed; None (not measured) fails."""
    tolerance = f"{_number(low)} to {_with_unit(high, unit)}"
    return _judged(figure, measured, tolerance, measured is not None and low <= measured <= high, unit)


def at_most(figure: Figure, measured: float | None, high: float, unit: str = "") -> Row:
    """A number with an upper bound."""
    return _judged(
        figure, measured, f"at most {_with_unit(high, unit)}", measured is not None and measured <= high, unit
    )


def at_least(figure: Figure, measured: float | None, low: float, unit: str = "") -> Row:
    """A number with a lower bound."""
    return _judged(
        figure, measured, f"at least {_with_unit(low, unit)}", measured is not None and measured >= low, unit
    )


def share_around(
    figure: Figure, measured: float | None, published: float, share: float, unit: str = ""
) -> Row:
    """A number within a share of the published one."""
    row = between(figure, measured, published * (1 - share), published * (1 + share), unit)
    return Row(figure, row.measured, f"± {share:.0%}", row.passed)


def same(figure: Figure, measured: str, wanted: str) -> Row:
    """A word that has to be this one."""
    return Row(figure, measured, wanted, measured == wanted)


def _judged(figure: Figure, measured: float | None, tolerance: str, passed: bool, unit: str) -> Row:
    told = "not measured" if measured is None else _with_unit(measured, unit, rounded=True)
    return Row(figure, told, tolerance, passed)


def _with_unit(value: float, unit: str, *, rounded: bool = False) -> str:
    number = (
        (f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}")
        if rounded
        else _number(value)
    )
    return number + unit if unit.startswith("/") else f"{number} {unit}".strip()


def _number(value: float) -> str:
    return f"{value:.4g}"


PUBLISHED = ("figure", "published", "source", "preset", "measured", "tolerance", "pass")
SWITCHED = ("figure", "with the mechanism", "switch", "preset", "without it", "tolerance", "pass")


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts, in the order of the headers."""
    return (*row.figure, row.measured, row.tolerance, "yes" if row.passed else "NO")


def markdown(header: tuple[str, ...], rows: Sequence[Row]) -> str:
    """A table of rows under a header."""
    lines = [header, ("---",) * len(header), *map(cells, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(rows: Sequence[Row]) -> str:
    """The same for a terminal: figure, source or switch, preset, measured, tolerance, pass."""
    chosen = [(cells(row)[0], *cells(row)[2:]) for row in rows]
    widths = [max(len(text) for text in column) for column in zip(*chosen, strict=True)]
    padded = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in chosen
    )
    return "\n".join(line.rstrip() for line in padded)
