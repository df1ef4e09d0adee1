"""PURE. What a fio run is worth: its exit code 0 proves nothing, so every other sign is read.

fio ends with 0 after a job killed on one server, a host that refused the connection, a job that died of
SIGABRT, and verify errors in every IO. A run is complete only when the exit code, each job's errors,
the set of hosts, the runtime, the IOs done and the text around the JSON all agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from errno import errorcode

from tasks.tool_output.fio import FioJob, FioRun

SHORTEST_RUNTIME_SHARE = 0.98
"""Of the runtime that was asked for; fio itself ends up to a second late, never early by more."""

RATED_RANDRW_FIXED_IN = (3, 36)


@dataclass(frozen=True, slots=True)
class FioExpectation:
    """What was asked of fio; None where it does not matter. `hosts` are those of a client's list."""

    exit_code: int | None = None
    runtime_s: float | None = None
    jobs: int | None = None
    hosts: frozenset[str] | None = None
    with_bins: bool = False


@dataclass(frozen=True, slots=True)
class FioVerdict:
    """`complete`, `incomplete` (some hosts of a client's run are good) or `failed`, with the reasons.

    `good` are the jobs whose numbers may be used, all of them when complete, none when failed.
    """

    verdict: str
    reasons: tuple[str, ...]
    good: tuple[FioJob, ...]


def judge(run: FioRun, expected: FioExpectation) -> FioVerdict:
    """The verdict on one run and every reason against it, hosts named."""
    of_jobs = [(job, reason) for job in run.jobs for reason in _job_reasons(job, run, expected)]
    of_run = list(_run_reasons(run, expected))
    reasons = (*(f"{job.host or job.name}: {reason}" for job, reason in of_jobs), *of_run)
    if not reasons:
        return FioVerdict("complete", (), run.jobs)
    bad = {job.host for job, _ in of_jobs} | {note.host for note in run.notes if not note.harmless}
    good = tuple(job for job in run.jobs if job.host is not None and job.host not in bad)
    return FioVerdict("incomplete" if good else "failed", reasons, good)


def _job_reasons(job: FioJob, run: FioRun, expected: FioExpectation) -> Iterator[str]:
    if job.error:
        yield f"error {job.error} ({errorcode.get(job.error, 'unknown')})"
    if job.total_errors:
        yield f"{job.total_errors} IOs failed, the first with error {job.first_error}"
    if not job.directions:
        yield "it did no IO"
    for each in job.directions:
        if not each.iops:
            yield f"it was killed: {each.total_ios} IOs, but no runtime"
        elif expected.runtime_s and each.runtime_ms < SHORTEST_RUNTIME_SHARE * 1000 * expected.runtime_s:
            yield f"it ran {each.runtime_ms / 1000:.1f} s of {expected.runtime_s:g} s"
        if expected.with_bins and each.clat.bins is None:
            yield "no latency bins: run with --output-format=json+"
    if _is_rated_randrw(job) and run.version < RATED_RANDRW_FIXED_IN:
        yield "a rated randrw job of fio before 3.36 may abort at its end (axboe/fio#1642): use two jobs"


def _is_rated_randrw(job: FioJob) -> bool:
    rated = job.options.get("rate_iops") or job.options.get("rate")
    return bool(rated) and job.options.get("rw") in {"randrw", "rw", "readwrite"}


def _run_reasons(run: FioRun, expected: FioExpectation) -> Iterator[str]:
    if expected.exit_code:
        yield f"exit code {expected.exit_code}"
    if expected.jobs is not None and len(run.jobs) != expected.jobs:
        yield f"{len(run.jobs)} jobs reported, {expected.jobs} were asked for"
    missing = sorted((expected.hosts or frozenset()) - {job.host for job in run.jobs if job.host})
    yield from (f"{host}: there is no result" for host in missing)
    yield from (
        f"it said {note.text!r}{f' ({note.times} times)' if note.times > 1 else ''}"
        for note in run.notes
        if not note.harmless
    )
