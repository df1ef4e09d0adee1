"""PURE. The run in plain text, for a terminal and for logs."""

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

from tasks.analysis.wording import duration_or_beyond, human_duration, with_error

__all__ = ["batch_line", "human_duration", "io_line", "latency_line", "verdict_line"]


def batch_line(summary: Mapping[str, Any]) -> str:
    """One finished batch in one line, columns aligned; failures are always named.

    `summary` is a row of `tasks.analysis.summaries.summaries`.
    """
    limit_s = summary.get("limit_s")
    took = with_error(summary.get("end_to_end_s"), summary.get("end_to_end_error_s"), limit_s)
    parts = [
        f"{summary['stage']:<7}{summary['batch']:>6,}",
        f"{_counts(summary):<22}",
        f"end to end {took:<22}",
        *(f"{name} {_percentile(summary, name):<12}" for name in ("p50", "p99")),
        _remark(summary),
    ]
    return "  ".join(parts).rstrip()


def io_line(cell: Mapping[str, Any]) -> str:
    """One cell of the io stage in one line; `cell` is what its commit says."""
    vms, block, pattern = str(cell["cell"]).split("-")
    rate = "not measured" if cell["gib_per_s"] is None else f"{cell['gib_per_s']:.2f} GiB/s"
    iops = "" if cell["iops"] is None else f"{cell['iops']:,.0f} IOPS"
    latencies = [
        f"{name} {'not measured' if cell[column] is None else f'{cell[column]:,.0f} us':<12}"
        for name, column in (("p50", "p50_us"), ("p99", "p99_us"))
    ]
    parts = [
        f"io     {int(vms):>6,}",
        f"ok {cell['n_ok']:<6,}",
        f"{block + ' KiB ' + pattern:<13}",
        f"{rate:>13}",
        f"{iops:>15}",
        *latencies,
        *(["saturated"] if cell["saturated"] else []),
        _remark(cell),
    ]
    return "  ".join(parts).rstrip()


def latency_line(summary: Mapping[str, Any]) -> str:
    """One tool of the latency stage in one line; `summary` is what its step returns."""
    n, longest = summary["samples"], summary["max_us"]
    parts = [
        f"latency {summary['tool']:<16}",
        f"max {'not measured' if longest is None else f'{longest:g} us'}",
        f"{n:,} samples" + (f" (95 %: longer ones fewer than 1 in {n // 3:,})" if n >= 3 else ""),
        *([] if summary["coverage"] is None else [f"coverage {_cut(summary['coverage'])}"]),
        *([f"{summary['not_ok']} not ok"] if summary["not_ok"] else []),
    ]
    return "  ".join(parts)


def _cut(share: float) -> str:
    """A share in percent that is never rounded up: 100 % is said of all alone."""
    return f"{floor(share * 1e5) / 1e3:g} %"


def _counts(summary: Mapping[str, Any]) -> str:
    failed = [
        f"{summary[f'n_{state}']:,} {state}"
        for state in ("timeout", "failed", "lost")
        if summary[f"n_{state}"]
    ]
    return "  ".join([f"ok {summary['n_ok']:,}", *failed])


def _percentile(summary: Mapping[str, Any], name: str) -> str:
    if summary.get("step") is None:
        return "-"
    return duration_or_beyond(summary.get(f"{name}_s"), summary.get("limit_s"))


def _remark(summary: Mapping[str, Any]) -> str:
    if summary["verdict"] == "valid":
        return ""
    return f"{summary['verdict']}: {'; '.join(summary.get('reasons') or ['no reason recorded'])}"


def verdict_line(verdict: str, reasons: Sequence[str]) -> str:
    """The run's verdict with its reasons: `verdict invalid: vm_not_ok: 20 of 3,200 timeout`."""
    return f"verdict {verdict}: {'; '.join(reasons)}" if reasons else f"verdict {verdict}"
