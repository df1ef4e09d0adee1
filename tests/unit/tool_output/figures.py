"""The measured figures of a parsed file, and how far damage may move each before a check must see it.

Slack 0: written twice, so any other value is a silent wrong number. A positive slack is what the
tool's own digits or bins leave open. None: the file says it once, nothing can confirm it; such a figure
is only protected by a digest (`tasks.tool_output.integrity`).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tasks.analysis.histograms import fio_percentiles_ns, percentile_bin, total
from tasks.tool_output.cyclictest import CyclictestRun
from tasks.tool_output.fio import FioDirection, FioRun
from tasks.tool_output.fio_verdict import FioExpectation, judge
from tasks.tool_output.jitterdebugger import JitterRun, JitterSample
from tasks.tool_output.l2reflect import L2ReflectRun
from tasks.tool_output.oslat import OslatRun
from tasks.tool_output.stress_ng import StressRun
from tasks.tool_output.threads import ThreadLatency

QUANTILES = (50.0, 99.0, 99.9)


class Figure(NamedTuple):
    value: float | None
    slack: float | None = 0.0


Figures = Iterator[tuple[str, Figure]]


def figures(run: object) -> dict[str, Figure]:
    """Every figure of a run by name."""
    readers: dict[type, Callable[..., Figures]] = {
        FioRun: _fio,
        JitterRun: lambda each: _threads(each.threads, each.resolution_ns, "jitterdebugger"),
        CyclictestRun: lambda each: _threads(each.threads, each.resolution_ns, "cyclictest"),
        OslatRun: _oslat,
        L2ReflectRun: _l2reflect,
        StressRun: _stress,
        tuple: _samples,
    }
    return dict(readers[type(run)](run))


def wrong(before: dict[str, Figure], after: dict[str, Figure]) -> list[str]:
    """Figures that differ by more than their slack, or came, or went."""
    found = [f"{name}: {before.get(name)} -> {after.get(name)}" for name in before.keys() ^ after.keys()]
    for name in before.keys() & after.keys():
        a, b = before[name], after[name]
        if a.slack is None or a.value == b.value:
            continue
        if a.value is None or b.value is None or abs(a.value - b.value) > a.slack:
            found.append(f"{name}: {a.value} -> {b.value}")
    return sorted(found)


def moved(before: dict[str, Figure], after: dict[str, Figure]) -> list[str]:
    """Names of figures that differ at all, without the numbers in them."""
    return sorted(name for name in before.keys() & after.keys() if before[name].value != after[name].value)


def _fio(run: FioRun) -> Figures:
    yield "finished_ms", Figure(run.finished_ms, None)
    yield "jobs", Figure(len(run.jobs))
    complete = judge(run, FioExpectation()).verdict == "complete"
    # damage may feign a failure, never hide one; what only a line of text or an option says is said once
    written = any(job.error or job.total_errors for job in run.jobs)
    yield "complete", Figure(float(complete), 0 if written else None)
    for i, job in enumerate(run.jobs):
        for name, each in (("read", job.read), ("write", job.write), ("trim", job.trim)):
            if each and (each.clat.n or not job.error):
                yield from (
                    (f"{i}.{name}.{key}", figure) for key, figure in _direction(each, bool(job.error))
                )


def _direction(each: FioDirection, failed: bool) -> Figures:
    clat, killed = each.clat, not each.runtime_ms
    yield "iops", Figure(each.iops, 2e-6 + 2e-9 * each.iops)
    yield "bytes_per_s", Figure(each.bytes_per_s)
    yield "io_bytes", Figure(each.io_bytes)
    yield "total_ios", Figure(each.total_ios, None if killed else 0)
    yield "runtime_ms", Figure(each.runtime_ms)
    yield "n", Figure(clat.n, None if failed or killed else 0)
    if clat.bins is None:
        yield from ((name, Figure(value, None)) for name, value in _unconfirmed(each))
        return
    yield "min_ns", Figure(clat.min_ns, clat.bins[0].upper_ns - clat.bins[0].lower_ns)
    yield "max_ns", Figure(clat.max_ns, clat.bins[-1].upper_ns - clat.bins[-1].lower_ns)
    yield "mean_ns", Figure(clat.mean_ns, clat.mean_ns / 32)
    printed = [q for q, _ in clat.percentiles]
    values = fio_percentiles_ns(clat.bins, printed)
    yield from ((f"p{q:g}", Figure(value)) for q, value in zip(printed, values, strict=True))


def _unconfirmed(each: FioDirection) -> Iterator[tuple[str, float]]:
    yield from (("min_ns", each.clat.min_ns), ("max_ns", each.clat.max_ns), ("mean_ns", each.clat.mean_ns))
    yield from ((f"p{q:g}", value) for q, value in each.clat.percentiles)


def _threads(threads: tuple[ThreadLatency, ...], unit_ns: int, tool: str) -> Figures:
    yield "threads", Figure(len(threads))
    for i, each in enumerate(threads):
        yield from ((f"{i}.{name}", figure) for name, figure in _thread(each, unit_ns, tool))


def _thread(each: ThreadLatency, unit_ns: int, tool: str) -> Figures:
    whole = each.confirmed and tool != "jitterdebugger"
    known = each.confirmed or each.overflow == 0
    digit = {"jitterdebugger": 0.01, "cyclictest": 1.0, "oslat": 0.0011}[tool] * unit_ns
    yield "n", Figure(each.n, 0 if known else None)
    yield "min_ns", Figure(each.min_ns)
    yield "max_ns", Figure(each.max_ns, 0 if known else None)
    yield "mean_ns", Figure(each.mean_ns, digit if known else None)
    yield "cpu", Figure(each.cpu, None)
    if each.bins is not None:
        cut = bool(each.overflow) and not whole
        yield "overflow", Figure(each.overflow, None if cut else 0)
        yield "binned", Figure(total(each.bins), None if cut else 0)
        for q in QUANTILES:
            at = percentile_bin(each.bins, q, each.overflow or 0)
            slack = 0 if whole else None if cut else each.n * digit
            yield f"p{q:g}", Figure(None if at is None else at.lower_ns, slack)


def _oslat(run: OslatRun) -> Figures:
    yield from _threads(run.threads, 1000, "oslat")
    yield from ((f"{i}.duration_s", Figure(value)) for i, value in enumerate(run.durations_s))
    yield from ((f"{i}.counter_mhz", Figure(value, None)) for i, value in enumerate(run.counter_mhz))


def _l2reflect(run: L2ReflectRun) -> Figures:
    yield "rounds", Figure(run.rounds)
    yield "warm_up", Figure(run.warm_up)
    yield "overflow", Figure(run.overflow, None)
    yield "in buckets", Figure(total(run.bins) + run.overflow)
    yield "min_ns", Figure(run.min_ns, 10_000)
    yield "max_ns", Figure(run.max_ns, None)
    yield "mean_ns", Figure(run.mean_ns, None)
    for q in QUANTILES:
        at = percentile_bin(run.bins, q, run.overflow)
        yield f"p{q:g}", Figure(None if at is None else at.lower_ns, None if q > 50 else 0)


def _stress(run: StressRun) -> Figures:
    yield "stressors", Figure(len(run.stressors))
    yield "epoch_s", Figure(run.epoch_s, None)
    for i, each in enumerate(run.stressors):
        yield f"{i}.bogo_ops", Figure(each.bogo_ops)
        yield f"{i}.wall_s", Figure(each.wall_s, 1e-5)
        yield f"{i}.cpu_s", Figure(each.user_s + each.system_s, 1e-4)
        yield f"{i}.user_s", Figure(each.user_s, 1e-4)
        yield f"{i}.max_rss_kib", Figure(each.max_rss_kib)


def _samples(run: tuple[JitterSample, ...]) -> Figures:
    yield "samples", Figure(len(run), None)
    yield "max", Figure(max((each.value for each in run), default=None), None)
