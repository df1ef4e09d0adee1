"""fio's json+ document, as fio 3.35 writes it, from the histogram of one job's latencies.

Everything that fio prints is there; what a model cannot know (context switches, page faults, the
spread of bandwidth over half seconds) has the value of an idle machine.
"""

from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import ceil, sqrt
from typing import Any

import orjson

from infra.guests.programs.fio_job import FioSection

VERSION = "fio-3.35"
SUBMIT_NS = 1500
"""Submission, which fio counts apart from completion; assumption (io_submit of one request)."""
_DEPTHS = ("1", "2", "4", "8", "16", "32", ">=64")
_LIMITS_NS = (2, 4, 10, 20, 50, 100, 250, 500, 750, 1000)
_LATENCY_TABLES = (
    ("latency_ns", 1, _LIMITS_NS),
    ("latency_us", 10**3, _LIMITS_NS),
    ("latency_ms", 10**6, (*_LIMITS_NS, 2000)),
)
_MANTISSA = 64
BY_ITSELF = "1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99"
"""Percentiles that fio prints when it is not told which."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one job did: latencies in fio's bins (middle in ns, count; ascending), its measured time."""

    section: FioSection
    bins: list[tuple[int, int]]
    block_bytes: int
    runtime_ms: int
    ended: datetime


@cache
def bin_middle(ns: int) -> int:
    """The middle of fio's bin for a latency, rounded down: 64 bins for each doubling from 128 ns."""
    shift = max(0, ns.bit_length() - 7)
    lower = ns >> shift << shift
    return lower + (1 << shift >> 1)


def document(measured: Measured) -> bytes:
    """The whole document, as `--output-format=json+` writes it."""
    section = measured.section
    seconds = int(measured.ended.timestamp())
    root = {
        "fio version": VERSION,
        "timestamp": seconds,
        "timestamp_ms": seconds * 1000 + measured.ended.microsecond // 1000,
        "time": measured.ended.strftime("%a %b %e %H:%M:%S %Y"),
        "global options": {name: value for name, value in section.shared.items() if value},
        "jobs": [_job(measured)],
        "disk_util": [],
    }
    return orjson.dumps(root)[:-1] + b"\n}\n"


def _job(measured: Measured) -> dict[str, Any]:
    section = measured.section
    writes = section.text("rw").endswith("write")
    done, depth = _direction(measured), section.text("iodepth", "1")
    level = next((each for each in _DEPTHS[:-1] if int(each) >= int(depth)), ">=64")
    return {
        "jobname": section.name,
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": measured.runtime_ms // 1000 + 1,
        "job options": {name: value for name, value in section.own.items() if value},
        "read": _IDLE if writes else done,
        "write": done if writes else _IDLE,
        "trim": _IDLE,
        "sync": {"total_ios": 0, "lat_ns": _NOTHING},
        "job_runtime": measured.runtime_ms,
        "usr_cpu": 0.0,
        "sys_cpu": 0.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
        "iodepth_level": {each: 100.0 if each == level else 0.0 for each in _DEPTHS},
        **_ONE_BY_ONE,
        **_latency_tables(measured.bins),
        "latency_depth": int(depth),
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    }


_NOTHING = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
_SAMPLES = {
    f"{what}_{name}": 0 if name in {"min", "max", "samples"} else 0.0
    for what in ("bw", "iops")
    for name in ("min", "max", "agg", "mean", "dev", "stddev", "samples")
    if (what, name) not in {("bw", "stddev"), ("iops", "agg"), ("iops", "dev")}
}
_IDLE: dict[str, Any] = {
    **dict.fromkeys(("io_bytes", "io_kbytes", "bw_bytes", "bw"), 0),
    "iops": 0.0,
    **dict.fromkeys(("runtime", "total_ios", "short_ios", "drop_ios"), 0),
    "slat_ns": _NOTHING,
    "clat_ns": _NOTHING,
    "lat_ns": _NOTHING,
    **_SAMPLES,
}
_STEPS = {"0": 0.0, "4": 100.0, "8": 0.0, "16": 0.0, "32": 0.0, "64": 0.0, ">=64": 0.0}
_ONE_BY_ONE = {"iodepth_submit": _STEPS, "iodepth_complete": _STEPS}


def _direction(measured: Measured) -> dict[str, Any]:
    n = sum(count for _, count in measured.bins)
    io_bytes, runtime = n * measured.block_bytes, measured.runtime_ms
    bw_bytes = 1000 * io_bytes // runtime if runtime else 0
    clat = _latency(measured, n)
    lat = {name: clat[name] + SUBMIT_NS if n else 0 for name in ("min", "max", "mean")}
    return {
        "io_bytes": io_bytes,
        "io_kbytes": io_bytes >> 10,
        "bw_bytes": bw_bytes,
        "bw": bw_bytes >> 10,
        "iops": round(1000 * n / runtime, 6) if runtime else 0.0,
        "runtime": runtime,
        "total_ios": n,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": {"min": SUBMIT_NS, "max": SUBMIT_NS, "mean": float(SUBMIT_NS), "stddev": 0.0, "N": n},
        "clat_ns": clat,
        "lat_ns": {**lat, "stddev": clat["stddev"], "N": n},
        **_SAMPLES,
    }


def _latency(measured: Measured, n: int) -> dict[str, Any]:
    bins = measured.bins
    if not n:
        return _NOTHING
    mean = sum(middle * count for middle, count in bins) / n
    square = sum(middle * middle * count for middle, count in bins) / n
    return {
        "min": bins[0][0],
        "max": bins[-1][0],
        "mean": round(min(max(mean, bins[0][0]), bins[-1][0]), 6),
        "stddev": round(sqrt(max(0.0, square - mean * mean)), 6),
        "N": n,
        "percentile": _percentiles(measured, n),
        "bins": {str(middle): count for middle, count in bins},
    }


def _percentiles(measured: Measured, n: int) -> dict[str, int]:
    asked = measured.section.text("percentile_list", BY_ITSELF).split(":")
    cumulated = list(accumulate(count for _, count in measured.bins))
    found = {}
    for text in asked:
        q = float(text)
        at = bisect_left(cumulated, max(1, ceil(n * q / 100 - 1e-6)))
        if cumulated[at] <= n * q / 100 + 1e-6:
            # right at the edge of a bin the last bit of fio's long double decides
            at = bisect_left(cumulated, fio_rank(n, q))
        found[f"{q:.6f}"] = measured.bins[at][0]
    return found


def fio_rank(n: int, q: float) -> int:
    """Fio's rank of a percentile: q / 100 * n in long double, rounded up."""
    return max(1, ceil(_long_double(_long_double(Fraction(q) / 100) * n)))


def _long_double(value: Fraction) -> Fraction:
    """Rounded to the mantissa of x86-64's long double."""
    shift = value.numerator.bit_length() - value.denominator.bit_length() - _MANTISSA
    if value >= Fraction(2) ** (shift + _MANTISSA):
        shift += 1
    return round(value / Fraction(2) ** shift) * Fraction(2) ** shift


def _latency_tables(bins: list[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """Share of the requests, in percent, up to each limit and above the one before."""
    counts: dict[int, int] = {}
    for middle, count in bins:
        at = bisect_left(_LIMITS, middle)
        counts[at] = counts.get(at, 0) + count
    n = sum(counts.values())
    tables = {name: dict(empty) for name, empty in _EMPTY.items()}
    for at, count in counts.items():
        name, limit = _CELLS[at]
        tables[name][limit] = round(100 * count / n, 6)
    return tables


_CELLS = [(name, str(limit)) for name, _, limits in _LATENCY_TABLES for limit in limits]
_CELLS.append(("latency_ms", ">=2000"))
_LIMITS = [limit * unit for _, unit, limits in _LATENCY_TABLES for limit in limits]
_EMPTY = {name: {limit: 0.0 for of, limit in _CELLS if of == name} for name, _, _ in _LATENCY_TABLES}
