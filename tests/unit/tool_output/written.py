"""fio's output written by the rules of its source from latencies, for runs of which no sample exists."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tasks.tool_output.fio_bins import index_of, middle_ns

QUANTILES = (50.0, 95.0, 99.0)
BLOCK = 4096


def percentile(latencies: Sequence[int], q: float) -> int:
    """By counting up, which is what fio does: the first bin with at least q % of all."""
    ordered = sorted(latencies)
    return middle_ns(index_of(next(each for i, each in enumerate(ordered, 1) if i * 100 >= q * len(ordered))))


def latency(latencies: Sequence[int]) -> dict[str, Any]:
    if not latencies:
        return {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    bins = Counter(index_of(each) for each in latencies)
    return {
        "min": min(latencies),
        "max": max(latencies),
        "mean": round(sum(latencies) / len(latencies), 6),
        "stddev": 0.0,
        "N": len(latencies),
        "percentile": {f"{q:f}": percentile(latencies, q) for q in QUANTILES},
        "bins": {str(middle_ns(index)): bins[index] for index in sorted(bins)},
    }


def direction(latencies: Sequence[int], runtime_ms: int) -> dict[str, Any]:
    io_bytes = len(latencies) * BLOCK
    bw_bytes = 1000 * io_bytes // runtime_ms if latencies else 0
    return {
        "io_bytes": io_bytes,
        "io_kbytes": io_bytes >> 10,
        "bw_bytes": bw_bytes,
        "bw": bw_bytes >> 10,
        "iops": round(1000 * len(latencies) / runtime_ms, 6) if latencies else 0.0,
        "runtime": runtime_ms if latencies else 0,
        "total_ios": len(latencies),
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency([]),
        "clat_ns": latency(latencies),
        "lat_ns": latency([]),
    }


def document(
    latencies: Sequence[int], runtime_ms: int = 1000, seconds: int = 1_796_025_946, **job: Any
) -> bytes:
    """One document of a read job."""
    row = {
        "jobname": "made",
        "groupid": 0,
        "error": 0,
        "job options": {"rw": "randread", "bs": "4k", "percentile_list": "50:95:99"},
        "read": direction(latencies, runtime_ms),
        "write": direction([], runtime_ms),
        "trim": direction([], runtime_ms),
        **job,
    }
    root = {
        "fio version": "fio-3.36",
        "timestamp": seconds,
        "timestamp_ms": seconds * 1000 + 5,
        "time": f"{datetime.fromtimestamp(seconds, UTC):%a %b %e %T %Y}",
        "jobs": [row],
    }
    return json.dumps(root, indent=2).encode() + b"\n"
