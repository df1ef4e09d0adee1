"""PURE. The page of a comparison: one self-contained HTML file, as the report of a run is."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from tasks.analysis.comparison import Comparison
from tasks.analysis.comparison_words import HEADINGS, bound_text, rows, share_text, value_text
from tasks.analysis.run_comparison import RunComparison
from tasks.charts.comparison import comparison_chart
from tasks.charts.look import Caption
from tasks.report.page import rendered
from tasks.report.tables import Cell, csv_uri

_SIZES = ("metric", "VMs", "pairs", "baseline", "run", "change")


def comparison_page(found: RunComparison) -> str:
    """One self-contained HTML file: result, what stood in the way, every metric, every size."""
    baseline, run = found.names
    world = str(found.run["world"])
    caption = Caption(world, f"{found.run['cluster']} · {run} against {baseline}")
    chart = comparison_chart(found.metrics, caption, found.answer)
    return rendered(
        "comparison.html.j2",
        {} if chart is None else {"chart-comparison": chart.to_dict()},
        found=found,
        world=world.upper(),
        world_for_print="".join(letter for letter in world.upper() if letter.isalnum()),
        confidence=f"{found.rules.confidence * 100:g} %",
        has_chart=chart is not None,
        headings=HEADINGS,
        rows=[
            _metric_cells(text, each) for text, each in zip(rows(found.metrics), found.metrics, strict=True)
        ],
        size_headings=_SIZES,
        sizes=[row for each in found.metrics for row in _size_cells(each)],
        csv=csv_uri(
            pl.DataFrame([row for each in found.metrics for row in _plain(each)], infer_schema_length=None)
        ),
        keys=_keys(found),
    )


def _metric_cells(text: Sequence[str], each: Comparison) -> list[Cell]:
    largest = each.sizes[-1]
    raw = (
        None,
        largest.size,
        largest.baseline,
        largest.run,
        each.change,
        each.low,
        each.threshold,
        each.units,
    )
    numbers = [_number(words, value) for words, value in zip(text[1:-1], raw[1:], strict=True)]
    return [Cell(text[0], text[0], False), *numbers, Cell(text[-1], text[-1], False)]


def _number(text: str, value: float | None) -> Cell:
    """What is not known sorts last, as what lies beyond a limit does."""
    return Cell(text, "Infinity" if value is None else repr(value), True)


def _size_cells(each: Comparison) -> list[list[Cell]]:
    unit, name = each.metric.unit, each.metric.name
    return [
        [
            Cell(name, name, False),
            _number(f"{size.size:,}", size.size),
            _number(f"{size.pairs:,}", size.pairs),
            _number(value_text(size.baseline, size.baseline_limit, unit), size.baseline),
            _number(value_text(size.run, size.run_limit, unit), size.run),
            _number(bound_text(size) if size.change is None else share_text(size.change), size.change),
        ]
        for size in each.sizes
    ]


def _plain(each: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "metric": each.metric.name,
            "unit": each.metric.unit,
            "size": size.size,
            "pairs": size.pairs,
            "baseline": size.baseline,
            "run": size.run,
            "change": size.change,
            "decision_of_all_sizes": each.decision,
        }
        for size in each.sizes
    ]


def _keys(found: RunComparison) -> list[list[Cell]]:
    """Every comparability key with both values; equal ones, too: what was equal is part of the result."""
    before, now = (each.get("comparability") or {} for each in (found.baseline, found.run))
    texts = [(key, _text(before.get(key)), _text(now.get(key))) for key in now | before]
    return [[Cell(text, text, False) for text in row] for row in texts]


def _text(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return str(value)
