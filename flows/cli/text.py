"""Plain text in columns, for terminals and pipes alike."""

from collections.abc import Collection, Sequence


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Text in columns, those of `right` to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths, right) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    columns = enumerate(zip(row, widths, strict=True))
    cells = [cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in columns]
    return "  ".join(cells).rstrip()
