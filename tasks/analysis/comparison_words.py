"""PURE. A comparison as people read it, and as one plain object for machines."""

from collections.abc import Sequence
from typing import Any

from tasks.analysis.comparison import AtSize, Comparison
from tasks.analysis.run_comparison import RunComparison
from tasks.analysis.wording import beyond, human_duration, listed

NONE = "\N{EN DASH}"
HEADINGS = ("metric", "VMs", "baseline", "run", "change", "interval", "threshold", "units", "decision")


def rows(found: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """One row of text per metric: values at its largest size, the change over all of them."""
    return [_row(each) for each in found]


def _row(each: Comparison) -> tuple[str, ...]:
    largest = each.sizes[-1]
    return (
        each.metric.name,
        f"{largest.size:,}" if largest.size else NONE,
        value_text(largest.baseline, largest.baseline_limit, each.metric.unit),
        value_text(largest.run, largest.run_limit, each.metric.unit),
        change_text(each),
        interval_text(each),
        f"{each.threshold * 100:g} %",
        units_text(each),
        each.decision,
    )


def value_text(value: float | None, limit: float | None, unit: str) -> str:
    """A value with its unit; what lies beyond the limit is said so, and no number is made up for it."""
    if value is None:
        return beyond(limit) if unit == "s" else "not measured"
    if unit == "s":
        return human_duration(value)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def share_text(share: float | None) -> str:
    """`+9.1 %`."""
    if share is None:
        return NONE
    return f"{share * 100 + 0.0:+,.1f} %" if abs(share) >= 0.0005 else "0.0 %"


def change_text(each: Comparison) -> str:
    """The change over the sizes where both runs are within their limits, and what the others prove."""
    bounds = [bound_text(size) for size in each.censored if size.bound is not None]
    if each.change is None:
        return bounds[-1] if bounds else NONE
    text = share_text(each.change)
    without = listed([f"{size.size:,}" for size in each.censored]) if each.censored else ""
    return f"{text} without {without} VMs" if without else text


def bound_text(size: AtSize) -> str:
    """What a value beyond its limit proves: `at least +3,250.0 %`."""
    if size.bound is None:
        return NONE
    return f"at {'least' if size.run is None else 'most'} {share_text(size.bound)}"


def interval_text(each: Comparison) -> str:
    """`+5.2 % to +12.9 %`, or that there is none."""
    if each.low is None or each.high is None:
        return "too few batches for an interval" if each.bounded and each.change is not None else NONE
    return f"{share_text(each.low)} to {share_text(each.high)}"


def units_text(each: Comparison) -> str:
    """What the interval rests on."""
    if not each.bounded:
        return "error bound not known"
    if each.units < 2:
        return "too few"
    return f"{each.units} pairs" if each.by == "repeats" else f"{each.units} sizes"


def as_object(found: RunComparison) -> dict[str, Any]:
    """The comparison for machines: shares are of the baseline's value, null is not known."""
    baseline, run = found.names
    return {
        "baseline": baseline,
        "run": run,
        "verdicts": {each["run_id"]: each["verdict"] for each in (found.baseline, found.run)},
        "regressions": found.regressions,
        "confidence": found.rules.confidence,
        "differing_keys": [each._asdict() for each in found.differing],
        "notes": list(found.notes),
        "metrics": [_metric(each) for each in found.metrics],
    }


def _metric(each: Comparison) -> dict[str, Any]:
    names = ("decision", "change", "low", "high", "threshold", "units", "by", "bounded")
    sizes = ("size", "pairs", "baseline", "run", "baseline_limit", "run_limit", "change", "bound")
    return {
        "metric": each.metric.name,
        "family": each.metric.family,
        "unit": each.metric.unit,
        **{name: getattr(each, name) for name in names},
        "sizes": [{name: getattr(size, name) for name in sizes} for size in each.sizes],
    }
