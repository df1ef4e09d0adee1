"""PURE. oslat's JSON (`--json=FILE`), with its console as a second witness.

Format: rt-tests 2.4, file version 1, us. A bucket named k holds loops that took from k-1 up to k us
(oslat rounds up), the last one also everything above: the JSON does not mark it, the number of buckets
is that of `-b` (32). Counts are loops of the busy loop, 10^8 in seconds, not interruptions.
"""

import re
from dataclasses import dataclass
from typing import Any

from tasks.tool_output.reading import Document, integer, mapping, number, under
from tasks.tool_output.rt_tests import RtHeader, option, rt_document, whole
from tasks.tool_output.threads import (
    NS_PER_US,
    Figures,
    Scale,
    ThreadLatency,
    bins_of,
    counts,
    overflow_of,
    thread_numbers,
)

TOOL = "oslat"
BUCKETS = 32
CLOCK_SLACK_S = 2.0

_NUMBER = rb"\d{1,18}(?:\.\d{1,9})?"
_ROW = re.compile(
    rb"^\s+(\d{1,9}|Minimum|Average|Maximum|Duration)(?: \(us\))?:\s+"
    rb"(" + _NUMBER + rb"(?: " + _NUMBER + rb")*)(?: \(.*\))?$",
    re.MULTILINE,
)
_UNSUPPORTED = ("-B", "--bias", "-W", "--bucket-width")


@dataclass(frozen=True, slots=True)
class OslatRun:
    """One run: header, a histogram of loops per thread, seconds and MHz of the counter per thread.

    In a thread's `n` are loops; its `overflow` counts the whole last bucket.
    """

    header: RtHeader
    threads: tuple[ThreadLatency, ...]
    durations_s: tuple[float, ...]
    counter_mhz: tuple[int, ...]


def parse_oslat(data: bytes, console: bytes = b"") -> OslatRun:
    """The run in the JSON file; `console` is its standard output.

    Raises ToolOutputError for a damaged file, one that contradicts itself or its console, and options
    that change what a bucket is (`--bias`, `--bucket-width`).
    """
    document, header = rt_document(TOOL, data)
    for word in header.command:
        name = word.partition("=")[0]
        document.check(name not in _UNSUPPORTED, "cmdline:", f"oslat {name} is not supported: buckets differ")
    asked = option(header.command, "-b", "bucket-size")
    scale = Scale(NS_PER_US, limit=BUCKETS if asked is None else whole(document, asked), below=1)
    holder = mapping(document, document.root, "thread")
    numbers = thread_numbers(document, holder, "thread")
    if len(numbers) != header.num_threads:
        document.wrong("num_threads", f"{header.num_threads}, but there are {len(numbers)} threads")
    rows = {name.decode(): tuple(float(n) for n in rest.split()) for name, rest in _ROW.findall(console)}
    found = [mapping(document, holder, str(i), "thread") for i in numbers]
    return OslatRun(
        header=header,
        threads=tuple(_thread(document, each, scale, (i, rows)) for i, each in enumerate(found)),
        durations_s=tuple(_duration(document, each, i, header) for i, each in enumerate(found)),
        counter_mhz=tuple(
            integer(document, each, "freq", under("thread", i), least=1) for i, each in enumerate(found)
        ),
    )


def _duration(document: Document, found: dict[str, Any], thread: int, header: RtHeader) -> float:
    path = under("thread", thread)
    duration_s = number(document, found, "duration", path)
    longest_s = header.ended_s - header.started_s + CLOCK_SLACK_S
    fits = duration_s <= longest_s
    document.check(fits, under(path, "duration"), f"{duration_s} s do not fit between start and end")
    return duration_s


def _thread(
    document: Document, found: dict[str, Any], scale: Scale, rest: tuple[int, dict[str, tuple[float, ...]]]
) -> ThreadLatency:
    thread, rows = rest
    path, limit = under("thread", thread), scale.limit or 0
    values = {key: count for key, count in counts(document, found, path, least=0).items() if count}
    document.check(max(values, default=0) <= limit, path, f"a bucket beyond the last one, {limit}")
    least, most = (integer(document, found, key, path, least=1) for key in ("min", "max"))
    n = sum(values.values())
    document.check(bool(n), path, "no loop was counted")
    figures = Figures(n, least, most, number(document, found, "avg", path), digit=1e-6, short=1)
    in_bins = {key: count for key, count in values.items() if key < limit}
    overflow = overflow_of(document, in_bins, path, figures, scale)
    return ThreadLatency(
        thread=thread,
        cpu=integer(document, found, "cpu", path),
        n=n,
        min_ns=least * NS_PER_US,
        max_ns=most * NS_PER_US,
        mean_ns=figures.mean * NS_PER_US,
        overflow=overflow,
        overflow_from_ns=(limit - 1) * NS_PER_US,
        bins=bins_of(in_bins, scale),
        confirmed=bool(rows) and _confirm(document, found, values, (thread, figures, rows)),
    )


def _confirm(
    document: Document,
    found: dict[str, Any],
    values: dict[int, int],
    rest: tuple[int, Figures, dict[str, tuple[float, ...]]],
) -> bool:
    """The console shows the same buckets, extremes and duration; refuses it otherwise."""
    thread, figures, rows = rest
    path = under("thread", thread)
    document.check(
        all(thread < len(row) for row in rows.values()), path, "the console does not show this thread"
    )
    shown = {int(name): int(row[thread]) for name, row in rows.items() if name.isdigit() and row[thread]}
    document.check(shown == values, path, "the console shows other buckets")
    said = tuple(
        rows.get(name, (None,) * (thread + 1))[thread] for name in ("Minimum", "Maximum", "Duration")
    )
    expected = (figures.least, figures.most, found.get("duration"))
    document.check(said == expected, path, f"the console says min, max, duration {said}")
    mean = rows.get("Average", (0.0,) * (thread + 1))[thread]
    document.check(abs(mean - figures.mean) < 0.001, path, f"the console says avg {mean}")
    return True
