"""PURE. l2reflect's histogram file (`-F FILE`): round trips of one frame between two network ports.

Format: the last version posted to dpdk-dev (file version 1, always cpu "0", whole us). A key is the
lower edge of a bucket; the last bucket holds the overflow. The first rounds warm up: they are in
`count`, `min`, `max` and `avg`, but in no bucket. The file is truncated and written anew on SIGUSR2, so
a copy may be cut off, or its counts may have moved on meanwhile: read it again.
"""

from dataclasses import dataclass
from typing import Any

from infra.errors import ToolOutputError
from tasks.analysis.histograms import Histogram, Pool
from tasks.tool_output.reading import Document, integer, mapping, under
from tasks.tool_output.threads import NS_PER_US, Scale, bins_of, counts

TOOL = "l2reflect"
FILE_VERSION = 1
BUCKET_US = 10
BUCKETS = 128
WARM_UP_ROUNDS = 41

_PATH = under("cpu", "0")


@dataclass(frozen=True, slots=True)
class L2ReflectRun:
    """What one end measured: round trips that include the peer's turn-around, guest's monotonic clock.

    `rounds` counts all, `warm_up` those of them in no bucket; min, max and mean (cut to whole us) are
    over all rounds. `overflow` samples are at or above `overflow_from_ns`, outside `bins`.
    """

    rounds: int
    warm_up: int
    min_ns: int | None
    max_ns: int | None
    mean_ns: int | None
    overflow: int
    overflow_from_ns: int
    bins: Histogram

    @property
    def max_is_of_the_warm_up(self) -> bool:
        """Whether the maximum lies above every bucket that holds a round."""
        if self.overflow or self.max_ns is None:
            return False
        return not self.bins or self.max_ns >= self.bins[-1].upper_ns

    @property
    def pool(self) -> Pool:
        """The measured rounds, warm-up left out; min and max are the tool's own, the mean is not known."""
        n = self.rounds - self.warm_up
        return Pool(n, self.min_ns, self.max_ns, None, self.overflow, self.bins)


def parse_l2reflect(
    data: bytes, bucket_us: int = BUCKET_US, buckets: int = BUCKETS, warm_up_rounds: int = WARM_UP_ROUNDS
) -> L2ReflectRun:
    """One end's file; `bucket_us` and `buckets` are `-H` and `-B` as the run was started.

    Raises ToolOutputError for a damaged file (cut off while it was rewritten: try again) and one that
    contradicts itself or these settings.
    """
    if not data.strip():
        raise ToolOutputError(TOOL, "line 1", "nothing was written (yet): read it again")
    document = Document(TOOL, data)
    document.check(isinstance(document.root, dict), "", "an object is expected")
    version = integer(document, document.root, "version")
    document.check(
        version == FILE_VERSION, "version", f"file version {version} is not known, {FILE_VERSION} is"
    )
    cpus = mapping(document, document.root, "cpu")
    document.check(list(cpus) == ["0"], "cpu", 'only cpu "0" is expected')
    found = mapping(document, cpus, "0", "cpu")
    values = counts(document, found, _PATH)
    scale = Scale(NS_PER_US, width=bucket_us, limit=(buckets - 1) * bucket_us)
    _check_keys(document, values, scale)
    rounds = integer(document, found, "count", _PATH)
    warm_up = rounds - sum(values.values())
    if warm_up != min(rounds, warm_up_rounds):
        document.wrong(
            under(_PATH, "count"),
            f"{rounds} rounds are counted, {rounds - warm_up} are in buckets: {warm_up_rounds} warm up,"
            " so it is damaged or was still moving (read it again)",
        )
    return _run(document, found, values, scale)


def _check_keys(document: Document, values: dict[int, int], scale: Scale) -> None:
    for key in values:
        if key % scale.width or key > (scale.limit or 0):
            path = under(under(_PATH, "histogram"), key)
            document.wrong(path, f"not a bucket: multiples of {scale.width} us up to {scale.limit} are")


def _run(document: Document, found: dict[str, Any], values: dict[int, int], scale: Scale) -> L2ReflectRun:
    limit, rounds = scale.limit or 0, integer(document, found, "count", _PATH)
    least, most, mean = (integer(document, found, key, _PATH) for key in ("min", "max", "avg"))
    overflow = values.get(limit, 0)
    in_bins = {key: count for key, count in values.items() if key < limit}
    warm_up = rounds - sum(values.values())
    if rounds:
        _check_figures(document, values, scale, (rounds, least, most, mean))
    return L2ReflectRun(
        rounds=rounds,
        warm_up=warm_up,
        min_ns=least * NS_PER_US if rounds else None,
        max_ns=most * NS_PER_US if rounds else None,
        mean_ns=mean * NS_PER_US if rounds else None,
        overflow=overflow,
        overflow_from_ns=limit * NS_PER_US,
        bins=bins_of(in_bins, scale),
    )


def _check_figures(
    document: Document, values: dict[int, int], scale: Scale, figures: tuple[int, int, int, int]
) -> None:
    """min, max and avg against the buckets; the warm-up may hold values outside of them."""
    rounds, least, most, mean = figures
    document.check(least <= mean <= most, _PATH, "not min <= avg <= max")
    if not values:
        return
    first, last = min(values), max(values)
    document.check(
        least < first + scale.width or first == scale.limit,
        under(_PATH, "min"),
        f"{least}, but the first bucket is {first}",
    )
    document.check(most >= last, under(_PATH, "max"), f"{most}, but the last bucket is {last}")
    warm_up = rounds - sum(values.values())
    lower = sum(key * count for key, count in values.items()) + warm_up * least
    tops = ((most if key == scale.limit else min(most, key + scale.width)) * n for key, n in values.items())
    upper = sum(tops) + warm_up * most
    document.check(
        lower < (mean + 1) * rounds and mean * rounds <= upper,
        under(_PATH, "avg"),
        f"{mean} is not a mean of these buckets ({lower / rounds:.1f} to {upper / rounds:.1f} us)",
    )


def stalled(before: L2ReflectRun, after: L2ReflectRun) -> bool:
    """Whether no round was completed between two copies of the file: a lost frame stops the run for ever."""
    return after.rounds <= before.rounds
