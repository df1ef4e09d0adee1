"""PURE. jitterdebugger's `results.json` (`-o DIR`), with its console as a second witness.

Format: jitterdebugger 0.3, file version 3. Its histogram has a bin per us (or per ns with `-N`) and
ends at 1 ms: samples above are counted, not binned, and the maximum is exact. The keys under "cpu" are
numbers of threads; only the console, or the sorted set of CPUs that was asked for, names the CPU. A
thread that never woke up writes `-nan`, which is no JSON, and 2^64-1 as minimum.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from infra.errors import ToolOutputError
from tasks.tool_output.reading import LARGEST_INTEGER, Document, integer, mapping, number, text, under
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
    cpu_of,
    overflow_of,
    thread_numbers,
)

TOOL = "jitterdebugger"
FILE_VERSION = 3
OVERFLOW_FROM_NS = 1_000_000

_NO_MEAN = re.compile(rb'("avg"\s*:\s*)-?nan\b')
_SAMPLE = struct.Struct("<IQQQ")
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class JitterRun:
    """One run: ns per unit as measured (1000 or 1), the guest's node name and kernel, its threads."""

    resolution_ns: int
    node: str
    kernel: str
    cpus_online: int
    threads: tuple[ThreadLatency, ...]


class JitterSample(NamedTuple):
    """One line of `samples.raw`: thread, CLOCK_MONOTONIC of the guest in ns, latency in the run's unit."""

    thread: int
    at_ns: int
    value: int


def parse_jitterdebugger(
    data: bytes, cpus: Sequence[int] | None = None, console: bytes = b"", nanoseconds: bool = False
) -> JitterRun:
    """The run in `results.json`; `cpus` are those asked for with `-a`, `console` its standard output.

    `nanoseconds` says that `-N` was given: nothing else would show a damaged unit.

    Raises ToolOutputError for a damaged file, one that contradicts itself or its console, and one that
    has not a thread for each of `cpus`.
    """
    if not data.strip():
        raise ToolOutputError(TOOL, "line 1", f"nothing was written; the console says {_last_words(console)}")
    document = Document(TOOL, _NO_MEAN.sub(rb"\1null", data))
    root = document.root
    document.check(isinstance(root, dict), "", "an object is expected")
    version = integer(document, root, "version")
    document.check(
        version == FILE_VERSION, "version", f"file version {version} is not known, {FILE_VERSION} is"
    )
    sysinfo = mapping(document, root, "sysinfo")
    resolution = integer(document, sysinfo, "resolution_in_ns", "sysinfo")
    due = 1 if nanoseconds else NS_PER_US
    document.check(resolution == due, "sysinfo\x1fresolution_in_ns", f"{resolution}, but {due} was asked for")
    return JitterRun(
        resolution_ns=resolution,
        node=text(document, sysinfo, "nodename", "sysinfo"),
        kernel=text(document, sysinfo, "release", "sysinfo"),
        cpus_online=integer(document, sysinfo, "cpus_online", "sysinfo", least=1),
        threads=_threads(document, resolution, cpus, console),
    )


def _threads(
    document: Document, resolution_ns: int, cpus: Sequence[int] | None, console: bytes
) -> tuple[ThreadLatency, ...]:
    holder = mapping(document, document.root, "cpu")
    numbers = thread_numbers(document, holder, "cpu")
    if cpus is not None and len(cpus) != len(numbers):
        document.wrong("cpu", f"{len(numbers)} threads, {len(cpus)} CPUs were asked for")
    scale = Scale(resolution_ns, limit=OVERFLOW_FROM_NS // resolution_ns)
    seen = console_threads(console)
    if seen and set(seen) != set(numbers):
        document.wrong("cpu", f"{len(numbers)} threads, the console shows {len(seen)}")
    return tuple(
        _thread(document, mapping(document, holder, str(i), "cpu"), scale, seen.get(i), (i, cpus))
        for i in numbers
    )


def _thread(
    document: Document,
    found: dict[str, Any],
    scale: Scale,
    shown: ConsoleThread | None,
    asked: tuple[int, Sequence[int] | None],
) -> ThreadLatency:
    thread, cpus = asked
    path = under("cpu", thread)
    values = counts(document, found, path)
    n, least, most = (integer(document, found, key, path) for key in ("count", "min", "max"))
    cpu = cpu_of(document, thread, cpus, shown)
    if not n:
        unused = not values and least == LARGEST_INTEGER and most == 0 and found.get("avg", 0) is None
        document.check(unused, path, "count is 0, yet there are values")
        return ThreadLatency(thread, cpu, 0, None, None, None, 0, OVERFLOW_FROM_NS, (), confirmed=bool(shown))
    figures = Figures(n, least, most, number(document, found, "avg", path))
    overflow = overflow_of(document, values, path, figures, scale)
    return ThreadLatency(
        thread=thread,
        cpu=cpu,
        n=n,
        min_ns=least * scale.unit_ns,
        max_ns=most * scale.unit_ns,
        mean_ns=figures.mean * scale.unit_ns,
        overflow=overflow,
        overflow_from_ns=OVERFLOW_FROM_NS,
        bins=bins_of(values, scale),
        confirmed=shown is not None and check_console(document, shown, figures, path),
    )


def parse_jitter_samples(data: bytes) -> tuple[JitterSample, ...]:
    """The records of `samples.raw` (`-s`), 28 packed bytes each; the tool loses the last ring's content.

    Raises ToolOutputError when a record is cut off, time runs backwards within a thread, or ns >= 1 s.
    """
    if len(data) % _SAMPLE.size:
        whole = len(data) // _SAMPLE.size
        raise ToolOutputError(TOOL, f"byte {whole * _SAMPLE.size}", f"record {whole + 1} is cut off")
    samples, latest = [], dict[int, int]()
    for i, (thread, s, ns, value) in enumerate(_SAMPLE.iter_unpack(data)):
        at_ns = s * NS_PER_S + ns
        if ns >= NS_PER_S or at_ns < latest.get(thread, 0):
            raise ToolOutputError(TOOL, f"byte {i * _SAMPLE.size}", f"record {i + 1} has no possible time")
        latest[thread] = at_ns
        samples.append(JitterSample(thread, at_ns, value))
    return tuple(samples)


def _last_words(console: bytes) -> str:
    lines = [line.strip() for line in console.decode(errors="replace").splitlines() if line.strip()]
    return repr(lines[-1][:120]) if lines else "nothing"
