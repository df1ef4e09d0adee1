"""PURE. fio's `json` and `json+` output, of one guest or of `fio --client`: read, and checked against itself.

fio writes text around its JSON, into the file of `--output` as well: notes, errors, signals. They are
kept, and what is not known to be harmless counts as a problem (`tasks.tool_output.fio_verdict`). The
checks: rates against totals and runtime, bytes against IOs and block size, N against totals, bins
against N, minimum, maximum, mean and every printed percentile against the bins.

Format: fio 3.33 to 3.41 (`stat.c`). All times in ns where the name says so; latencies are of the
guest's monotonic clock, `finished_ms` and `started_ms` are epoch milliseconds of the guest's wall clock.
"""

import re
from dataclasses import dataclass
from typing import Any

from infra.errors import ToolOutputError
from tasks.analysis.histograms import Histogram
from tasks.tool_output.fio_checks import check_clock, check_direction, check_latency
from tasks.tool_output.fio_text import Note, documents
from tasks.tool_output.reading import (
    Document,
    integer,
    listing,
    mapping,
    number,
    text,
    under,
)

TOOL = "fio"
ALL_CLIENTS = "All clients"
"""The row that a client adds up itself: wrong before 3.39 (no bins, failed hosts), so never read."""

_VERSION = re.compile(r"fio-(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class FioLatency:
    """One latency metric of one direction.

    `percentiles` are fio's own, (percent, ns), each the middle of a bin. `bins` is None when fio wrote
    none (plain `json`): then nothing confirms the percentiles, and nothing can be merged.
    """

    n: int
    min_ns: int
    max_ns: int
    mean_ns: float
    percentiles: tuple[tuple[float, int], ...]
    bins: Histogram | None


@dataclass(frozen=True, slots=True)
class FioDirection:
    """What one job did in one direction. `failed_ios` are in `total_ios` but have no latency."""

    iops: float
    bytes_per_s: int
    io_bytes: int
    total_ios: int
    failed_ios: int
    short_ios: int
    drop_ios: int
    runtime_ms: int
    clat: FioLatency
    lat: FioLatency | None
    """Submission to completion; None unless fio wrote its percentiles (`lat_percentiles=1`)."""


@dataclass(frozen=True, slots=True)
class FioJob:
    """One job, or one host's job in client mode.

    A direction is None when it did nothing. `started_ms` is None before fio 3.36, which first says it.
    `options` are as given to fio, the global ones under the job's own; flags without a value are not
    written by fio at all.
    """

    name: str
    host: str | None
    error: int
    total_errors: int
    first_error: int
    started_ms: int | None
    elapsed_s: int | None
    options: dict[str, str]
    read: FioDirection | None
    write: FioDirection | None
    trim: FioDirection | None

    @property
    def directions(self) -> tuple[FioDirection, ...]:
        """Those that did something."""
        return tuple(each for each in (self.read, self.write, self.trim) if each)


@dataclass(frozen=True, slots=True)
class FioRun:
    """One document of fio's: every job, and the notes of the whole output around it."""

    version: tuple[int, int]
    finished_ms: int
    jobs: tuple[FioJob, ...]
    notes: tuple[Note, ...]

    @property
    def job(self) -> FioJob:
        """The only job; ToolOutputError when there is not exactly one."""
        if len(self.jobs) != 1:
            raise ToolOutputError(TOOL, "jobs", f"one job is expected, there are {len(self.jobs)}")
        return self.jobs[0]


def parse_fio(data: bytes, console: bytes = b"") -> FioRun:
    """The run that fio reported: its last document when it wrote several (`--status-interval`).

    `data` is the file of `--output` (or standard output); `console` what it printed beside that.
    Raises ToolOutputError when there is no document, or one that is damaged or contradicts itself.
    """
    return parse_fio_intervals(data, console)[-1]


def parse_fio_intervals(data: bytes, console: bytes = b"") -> tuple[FioRun, ...]:
    """Every document in order; each is cumulative since the start, so rates are differences.

    Raises ToolOutputError as `parse_fio`, and when a later document counts fewer IOs than an earlier.
    """
    found, notes = documents(data, console)
    runs = tuple(_run(document, notes) for document in found)
    for i in range(1, len(runs)):
        before, after = _totals(runs[i - 1]), _totals(runs[i])
        if any(after.get(key, 0) < ios for key, ios in before.items()):
            found[i].wrong("", "it counts fewer IOs than the document before it")
    return runs


def _totals(run: FioRun) -> dict[tuple[int, str], int]:
    return {
        (i, direction): done.total_ios
        for i, job in enumerate(run.jobs)
        for direction in ("read", "write", "trim")
        if (done := getattr(job, direction))
    }


def _run(document: Document, notes: tuple[Note, ...]) -> FioRun:
    root = document.root
    version = _VERSION.match(text(document, root, "fio version"))
    if not version:
        document.wrong("\x1ffio version", "a version like fio-3.33 is expected")
    rows = "client_stats" if "client_stats" in root else "jobs"
    shared = _options(document, root, "global options", "")
    _refuse_merged_rows(document, listing(document, root, rows))
    jobs = [
        _job(document, row, under(rows, i), shared) for i, row in enumerate(listing(document, root, rows))
    ]
    kept = tuple(job for job in jobs if job is not None)
    document.check(bool(kept), rows, "there is no job in it")
    if rows == "client_stats":
        _refuse_a_sum(document, kept, rows)
    return FioRun(
        version=(int(version[1]), int(version[2])),
        finished_ms=check_clock(document, root),
        jobs=kept,
        notes=notes,
    )


def _refuse_merged_rows(document: Document, rows: list[Any]) -> None:
    """A lost piece between two rows makes one of both, with every key twice."""
    parts = [part for row in rows if isinstance(row, dict) for part in row.values() if isinstance(part, dict)]
    document.check_repeats("jobname", len(rows))
    for key in ("clat_ns", "io_bytes", "bw_bytes"):
        document.check_repeats(key, sum(key in part for part in parts))


def _refuse_a_sum(document: Document, jobs: tuple[FioJob, ...], path: str) -> None:
    """A client's row that adds up the rows before it is "All clients", whatever it is called."""
    done = [
        (sum(d.total_ios for d in job.directions), sum(d.io_bytes for d in job.directions)) for job in jobs
    ]
    for i in range(2, len(jobs)):
        ios, io_bytes = (sum(each) for each in zip(*done[:i], strict=True))
        document.check(
            (ios, io_bytes) != done[i] or not ios, under(path, i), "it is the sum of the rows before it"
        )


def _job(document: Document, row: Any, path: str, shared: dict[str, str]) -> FioJob | None:
    document.check(isinstance(row, dict), path, "an object is expected")
    name = text(document, row, "jobname", path)
    if name == ALL_CLIENTS and path.startswith("client_stats"):
        return None
    document.check("mixed" not in row, path, "unified_rw_reporting is not supported: directions are needed")
    options = shared | _options(document, row, "job options", path)
    error = integer(document, row, "error", path)
    read, write, trim = (
        _direction(document, row, under(path, direction), options) for direction in ("read", "write", "trim")
    )
    return FioJob(
        name=name,
        host=text(document, row, "hostname", path) if "hostname" in row else None,
        error=error,
        total_errors=integer(document, row, "total_err", path) if "total_err" in row else 0,
        first_error=integer(document, row, "first_error", path) if "first_error" in row else 0,
        started_ms=integer(document, row, "job_start", path, least=1) if "job_start" in row else None,
        elapsed_s=integer(document, row, "elapsed", path) if "elapsed" in row else None,
        options=options,
        read=read,
        write=write,
        trim=trim,
    )


def _options(document: Document, holder: dict[str, Any], key: str, path: str) -> dict[str, str]:
    if key not in holder:
        return {}
    found = mapping(document, holder, key, path)
    return {name: text(document, found, name, under(path, key)) for name in found}


def _direction(
    document: Document, row: dict[str, Any], path: str, options: dict[str, str]
) -> FioDirection | None:
    key = path.rpartition("\x1f")[2]
    if _did_nothing(row.get(key)):
        return None
    found = mapping(document, row, key, path.rpartition("\x1f")[0])
    total_ios, io_bytes = (integer(document, found, name, path) for name in ("total_ios", "io_bytes"))
    clat = _latency(document, found, "clat_ns", path, options)
    check_direction(document, found, path, options, failed=bool(row["error"]))
    lat = mapping(document, found, "lat_ns", path)
    return FioDirection(
        iops=number(document, found, "iops", path),
        bytes_per_s=integer(document, found, "bw_bytes", path),
        io_bytes=io_bytes,
        total_ios=total_ios,
        failed_ios=total_ios - clat.n,
        short_ios=integer(document, found, "short_ios", path),
        drop_ios=integer(document, found, "drop_ios", path),
        runtime_ms=integer(document, found, "runtime", path),
        clat=clat,
        lat=_latency(document, found, "lat_ns", path, options) if "percentile" in lat else None,
    )


def _did_nothing(found: Any) -> bool:
    """Whether IOs, bytes and latencies are all 0."""
    if not isinstance(found, dict) or not isinstance(found.get("clat_ns"), dict):
        return False
    figures = (found.get("total_ios"), found.get("io_bytes"), found["clat_ns"].get("N"))
    return figures == (0, 0, 0)


def _latency(
    document: Document, holder: dict[str, Any], metric: str, path: str, options: dict[str, str]
) -> FioLatency:
    found = mapping(document, holder, metric, path)
    inside = under(path, metric)
    percentiles, bins = check_latency(document, found, inside, options)
    return FioLatency(
        n=integer(document, found, "N", inside),
        min_ns=integer(document, found, "min", inside),
        max_ns=integer(document, found, "max", inside),
        mean_ns=number(document, found, "mean", inside),
        percentiles=percentiles,
        bins=bins,
    )
