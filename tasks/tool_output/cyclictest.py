"""PURE. cyclictest's JSON (`--json=FILE`), with its console as a second witness.

Format: rt-tests 2.4, file version 1. `resolution_in_ns` is 0 for us and 1 for ns. Without `-h N` there
is no histogram; with it, samples at or above N are counted in `cycles` and dropped from the JSON: only
the console says how many there were. The maximum is exact.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.tool_output.reading import Document, integer, mapping, number, under
from tasks.tool_output.rt_tests import RtHeader, option, rt_document, whole
from tasks.tool_output.threads import (
    NS_PER_US,
    ConsoleThread,
    Figures,
    Scale,
    ThreadLatency,
    bins_of,
    check_console,
    console_threads,
    counts,
    overflow_of,
    thread_numbers,
)

TOOL = "cyclictest"

_NSECS = re.compile(r"--nsecs|-[A-Za-z]*N[A-Za-z]*")
_ROW = re.compile(rb"^(\d{6,12}) (\d{1,18}(?:\t\d{1,18})*)\s*$", re.MULTILINE)
_FOOT = re.compile(
    rb"^# (Total|Min Latencies|Avg Latencies|Max Latencies|Histogram Overflows):((?: \d{1,18})+)\s*$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class CyclictestRun:
    """One run: its header, ns per unit as measured (1000 or 1), a histogram per thread."""

    header: RtHeader
    resolution_ns: int
    threads: tuple[ThreadLatency, ...]


@dataclass(frozen=True, slots=True)
class _Console:
    """The console's histogram by thread (value to count), its footer lines, and the lines per thread."""

    rows: int
    histograms: dict[int, dict[int, int]]
    foot: dict[str, tuple[int, ...]]
    threads: Mapping[int, ConsoleThread]
    digit: float | None
    """Of the mean in a thread's line; None when lines may have been painted before the end (no -q)."""


def parse_cyclictest(data: bytes, console: bytes = b"") -> CyclictestRun:
    """The run in the JSON file; `console` is its standard output (`-q`).

    Raises ToolOutputError for a damaged file and one that contradicts itself or its console.
    """
    document, header = rt_document(TOOL, data)
    unit = integer(document, document.root, "resolution_in_ns")
    document.check(unit in (0, 1), "resolution_in_ns", f"{unit} is neither 0 (us) nor 1 (ns)")
    in_ns = any(_NSECS.fullmatch(word) for word in header.command)
    document.check(
        in_ns == (unit == 1), "resolution_in_ns", f"{unit}, but the command line says otherwise (-N)"
    )
    resolution_ns = 1 if unit else NS_PER_US
    asked = option(header.command, "-h", "histogram") or option(header.command, "-H", "histofall")
    scale = Scale(resolution_ns, limit=None if asked is None else whole(document, asked))
    holder = mapping(document, document.root, "thread")
    numbers = thread_numbers(document, holder, "thread")
    if len(numbers) != header.num_threads:
        document.wrong("num_threads", f"{header.num_threads}, but there are {len(numbers)} threads")
    seen = _console(console, quiet=bool({"-q", "--quiet"} & set(header.command)))
    if seen.rows and seen.rows != scale.limit:
        document.wrong("cmdline:", f"{scale.limit} bins were asked for, the console shows {seen.rows}")
    threads = (
        _thread(document, mapping(document, holder, str(i), "thread"), scale, (i, seen)) for i in numbers
    )
    return CyclictestRun(header, resolution_ns, tuple(threads))


def _thread(
    document: Document, found: dict[str, Any], scale: Scale, rest: tuple[int, _Console]
) -> ThreadLatency:
    thread, seen = rest
    path = under("thread", thread)
    values = counts(document, found, path)
    n, least, most = (integer(document, found, key, path) for key in ("cycles", "min", "max"))
    figures = Figures(n, least, most, number(document, found, "avg", path))
    document.check(bool(n), under(path, "cycles"), "no cycle was measured")
    document.check(
        least <= figures.mean + 0.005 and figures.mean <= most + 0.005, path, "not min <= avg <= max"
    )
    document.check(scale.limit is not None or not values, path, "a histogram that was not asked for (-h)")
    overflow = None if scale.limit is None else overflow_of(document, values, path, figures, scale)
    return ThreadLatency(
        thread=thread,
        cpu=integer(document, found, "cpu", path),
        n=n,
        min_ns=least * scale.unit_ns,
        max_ns=most * scale.unit_ns,
        mean_ns=figures.mean * scale.unit_ns,
        overflow=overflow,
        overflow_from_ns=None if scale.limit is None else scale.limit * scale.unit_ns,
        bins=None if scale.limit is None else bins_of(values, scale),
        confirmed=_confirmed(document, values, figures, (path, thread, overflow, seen)),
    )


def _confirmed(
    document: Document,
    values: dict[int, int],
    figures: Figures,
    rest: tuple[str, int, int | None, _Console],
) -> bool:
    path, thread, overflow, seen = rest
    if thread in seen.threads:
        return check_console(document, seen.threads[thread], figures, path, seen.digit)
    if not seen.rows:
        return False
    expected = {
        "Total": sum(values.values()),
        "Min Latencies": figures.least,
        "Avg Latencies": int(figures.mean),
        "Max Latencies": figures.most,
        "Histogram Overflows": overflow,
    }
    for key, value in expected.items():
        said = seen.foot.get(key, ())
        if thread >= len(said) or said[thread] != value:
            document.wrong(path, f"the console does not say {key} {value}")
    document.check(seen.histograms.get(thread) == values, path, "the console shows another histogram")
    return True


def _console(console: bytes, quiet: bool) -> _Console:
    histograms: dict[int, dict[int, int]] = {}
    rows = 0
    for row in _ROW.finditer(console):
        rows += 1
        for thread, count in enumerate(row[2].split()):
            histogram = histograms.setdefault(thread, {})
            if int(count):
                histogram[int(row[1])] = int(count)
    foot = {name.decode(): tuple(int(each) for each in rest.split()) for name, rest in _FOOT.findall(console)}
    return _Console(rows, histograms, foot, console_threads(console), 1.0 if quiet else None)
