"""PURE. What the latency tools have in common: one histogram of whole values per measuring thread."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from tasks.analysis.histograms import EMPTY, Bin, Histogram, Pool
from tasks.tool_output.reading import Document, integer, mapping, under

NS_PER_US = 1_000

_DIGITS = re.compile(r"0|[1-9]\d{0,18}")


@dataclass(frozen=True, slots=True)
class ThreadLatency:
    """What one thread measured; times are of the guest's monotonic clock.

    `cpu` is None when nothing said which one it was pinned to. min, max and mean are None without
    samples; they are over all `n`. `overflow` samples were counted but lie at or above
    `overflow_from_ns`, outside `bins`. `bins` and `overflow` are None when the tool kept no histogram.
    `confirmed` says that a second output of the same run (the console) agreed: without it, damage to a
    histogram that has an overflow may stay unseen. jitterdebugger's console does not say how many
    samples it binned: with an overflow, only a digest protects that.
    """

    thread: int
    cpu: int | None
    n: int
    min_ns: int | None
    max_ns: int | None
    mean_ns: float | None
    overflow: int | None
    overflow_from_ns: int | None
    bins: Histogram | None
    confirmed: bool

    @property
    def pool(self) -> Pool:
        """For merging with other threads and segments; nothing when no histogram was kept."""
        if self.bins is None or self.overflow is None or not self.n:
            return EMPTY
        return Pool(self.n, self.min_ns, self.max_ns, self.mean_ns, self.overflow, self.bins)


class Scale(NamedTuple):
    """How a tool's histogram is cut: ns per unit of its keys, units per bin, first unit of overflow.

    `below` is how much a key lies above its bin's lower edge (1 for oslat, which rounds up).
    """

    unit_ns: int
    width: int = 1
    limit: int | None = None
    below: int = 0

    def bin(self, key: int, count: int) -> Bin:
        """The bin of a key."""
        lower = (key - self.below) * self.unit_ns
        return Bin(lower, lower + self.width * self.unit_ns, count)


class Figures(NamedTuple):
    """A thread's own summary in the tool's unit.

    `digit` is the width of the mean's last digit, `short` what the mean may miss per overflow.
    """

    n: int
    least: int
    most: int
    mean: float
    digit: float = 0.01
    short: int = 0


def counts(document: Document, holder: Mapping[str, Any], path: str, least: int = 1) -> dict[int, int]:
    """The member `histogram`: whole keys in order, counts of at least `least`."""
    found, inside = mapping(document, holder, "histogram", path), under(path, "histogram")
    for key in found:
        document.check(bool(_DIGITS.fullmatch(key)), under(inside, key), "a whole number is expected as key")
        integer(document, found, key, inside, least)
    keys = [int(key) for key in found]
    for a, b in pairwise(keys):
        document.check(a < b, under(inside, str(b)), f"it follows {a}: the keys are not in order")
    return dict(zip(keys, found.values(), strict=True))


def overflow_of(
    document: Document, found: Mapping[int, int], path: str, figures: Figures, scale: Scale
) -> int:
    """How many samples are in no bin; refuses figures that the histogram contradicts."""
    binned = sum(found.values())
    overflow = figures.n - binned
    if overflow < 0:
        document.wrong(path, f"the histogram holds {binned} samples, {figures.n} were counted")
    first, last = min(found, default=None), max(found, default=None)
    limit = scale.limit or 0
    if last is not None and scale.limit is not None and last >= scale.limit:
        document.wrong(under(path, "histogram"), f"{last} is beyond the last bin, {limit - 1}")
    if first is not None and figures.least != first:
        document.wrong(under(path, "min"), f"{figures.least}, but the first bin is {first}")
    if first is None and figures.least < limit:
        document.wrong(under(path, "min"), f"{figures.least} is in no bin")
    if not overflow and figures.most != last:
        document.wrong(under(path, "max"), f"{figures.most}, but the last bin is {last}")
    if overflow and figures.most < limit:
        document.wrong(under(path, "max"), f"{figures.most}, yet {overflow} samples are at or above {limit}")
    _check_mean(document, found, path, (figures, overflow, limit))
    return overflow


def _check_mean(
    document: Document, found: Mapping[int, int], path: str, rest: tuple[Figures, int, int]
) -> None:
    """The mean lies where bins and overflow (one sample of it being the maximum) can put it."""
    figures, overflow, limit = rest
    binned = sum(key * count for key, count in found.items())
    lower = binned + ((overflow - 1) * limit + figures.most if overflow else 0)
    upper = binned + overflow * figures.most
    slack = figures.n * figures.digit * 0.500001 + 1e-9 * upper + overflow * figures.short
    if not lower - slack <= figures.mean * figures.n <= upper + slack:
        between = f"{lower / figures.n:.2f} and {upper / figures.n:.2f}"
        document.wrong(
            under(path, "avg"), f"{figures.mean} is not a mean of this histogram (between {between})"
        )


def bins_of(found: Mapping[int, int], scale: Scale) -> Histogram:
    """The bins in ns."""
    return tuple(scale.bin(key, count) for key, count in found.items())


def thread_numbers(document: Document, holder: Mapping[str, Any], key: str) -> list[int]:
    """The threads 0, 1, 2 ... that have to be there, at least one."""
    document.check_repeats("histogram", len(holder))
    numbers = list(holder)
    document.check(
        bool(numbers) and numbers == [str(i) for i in range(len(numbers))],
        key,
        f"threads 0, 1, 2 ... are expected, not {', '.join(numbers)[:60] or 'none'}",
    )
    return list(range(len(numbers)))


class ConsoleThread(NamedTuple):
    """A thread's line on the console: `T: 0 (19423) A: 0 C: 9990 Min: 13 Avg: 55.86 Max: 1160`."""

    cpu: int | None
    n: int
    least: int
    mean: float
    most: int


_LINE = re.compile(
    rb"T:\s*(?P<thread>\d{1,6}) \(\s*\d+\) (?:A:\s*(?P<cpu>\d{1,6})|P:\s*\d+ I:\s*\d+) C:\s*(?P<n>\d{1,18})\b"
    rb" Min:\s*(?P<min>\d{1,18}) (?:Act:\s*\d+ )?Avg:\s*(?P<avg>\d{1,18}(?:\.\d{1,9})?)"
    rb" Max:\s*(?P<max>\d{1,18})\b"
)


def console_threads(console: bytes) -> dict[int, ConsoleThread]:
    """The last line of each thread on the console of jitterdebugger or cyclictest."""
    return {
        int(line["thread"]): ConsoleThread(
            None if line["cpu"] is None else int(line["cpu"]),
            int(line["n"]),
            int(line["min"]),
            float(line["avg"]),
            int(line["max"]),
        )
        for line in _LINE.finditer(console)
    }


def check_console(
    document: Document, shown: ConsoleThread, figures: Figures, path: str, digit: float | None = None
) -> bool:
    """Whether the console's last line is the final one (same count); refuses one that contradicts.

    A line that was painted before the end may count fewer samples and know less extreme values; with
    `digit`, that of its mean, the line has to be the final one.
    """
    if digit is None and shown.n < figures.n:
        earlier = shown.least >= figures.least and shown.most <= figures.most
        document.check(earlier, path, f"the console showed {shown.least} to {shown.most} before the end")
        return False
    same = shown.n == figures.n and shown.least == figures.least and shown.most == figures.most
    document.check(
        same and abs(shown.mean - figures.mean) < (digit or figures.digit),
        path,
        f"the console says count {shown.n}, min {shown.least}, avg {shown.mean}, max {shown.most}",
    )
    return True


def cpu_of(
    document: Document, thread: int, cpus: Sequence[int] | None, shown: ConsoleThread | None
) -> int | None:
    """Which CPU a thread was pinned to, from the sorted set that was asked for and from the console."""
    asked = None if cpus is None else sorted(cpus)[thread]
    said = shown.cpu if shown else None
    if asked is not None and said is not None and asked != said:
        document.wrong("", f"thread {thread} was asked for on CPU {asked}, the console says CPU {said}")
    return said if asked is None else asked
