"""PURE. What fio writes twice must agree: the checks that turn damage into an error."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise, repeat
from operator import lt, mul
from typing import Any

from tasks.analysis.histograms import Bin, Histogram, fio_rank, percentile_bins
from tasks.tool_output.fio_bins import BY_MIDDLE, BY_NAME, LAST, edges, index_of
from tasks.tool_output.reading import Document, integer, mapping, number, text, under

QUARTER_OF_AN_HOUR_S = 900
FURTHEST_ZONE_S = 14 * 3600
PERCENTILE_LIST = "percentile_list"
USUAL_PERCENTILES = [
    *(1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0),
    *(95.0, 99.0, 99.5, 99.9, 99.95, 99.99),
]
"""What fio prints unless `percentile_list` says else."""

_SIZE = re.compile(r"(\d+)([kmg]?)(?:i?b)?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_VARIABLE_SIZE = {"bsrange", "bssplit", "bs_unaligned", "blocksize_unaligned", "kb_base", "blocksize_range"}


def check_clock(document: Document, root: dict[str, Any]) -> int:
    """The epoch milliseconds at which fio wrote the document; its three spellings have to agree."""
    seconds = integer(document, root, "timestamp", least=1)
    ms = integer(document, root, "timestamp_ms") if "timestamp_ms" in root else seconds * 1000
    document.check(ms // 1000 == seconds, "timestamp_ms", f'{ms} is not in the second of "timestamp"')
    if "time" in root:
        _check_time(document, text(document, root, "time"), seconds)
    return ms


def _check_time(document: Document, written: str, seconds: int) -> None:
    local = _local_seconds(written)
    if local is None:
        document.wrong("time", f"not a time as fio writes it: {written[:60]!r}")
    ahead = local - seconds
    if ahead % QUARTER_OF_AN_HOUR_S or abs(ahead) > FURTHEST_ZONE_S:
        document.wrong("time", f'{written!r} is not the time of "timestamp" in any time zone')


@lru_cache(1024)
def _local_seconds(written: str) -> int | None:
    """Epoch seconds of a local time such as `Mon Nov 30 08:05:36 2026` as if it were UTC; None for none."""
    try:
        local = datetime.strptime(written, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(local.timestamp()) if written == f"{local:%a %b %e %T %Y}" else None


def check_direction(
    document: Document, found: dict[str, Any], path: str, options: dict[str, str], failed: bool
) -> None:
    """Rates, totals, bytes and N of one direction agree; `options` are empty when blocks may be missing."""
    total_ios, io_bytes, runtime = (
        integer(document, found, name, path) for name in ("total_ios", "io_bytes", "runtime")
    )
    bw_bytes, n = integer(document, found, "bw_bytes", path), found["clat_ns"]["N"]
    iops = number(document, found, "iops", path)
    true_iops = 1000 * total_ios / runtime if runtime else 0.0
    true_bw = 1000 * io_bytes // runtime if runtime else 0
    _equal(document, integer(document, found, "io_kbytes", path), io_bytes >> 10, under(path, "io_kbytes"))
    _equal(document, bw_bytes, true_bw, under(path, "bw_bytes"))
    _equal(document, integer(document, found, "bw", path), bw_bytes >> 10, under(path, "bw"))
    document.check(
        abs(iops - true_iops) <= 1e-6 + 1e-9 * true_iops,
        under(path, "iops"),
        f"{iops} is not {total_ios} IOs in {runtime} ms",
    )
    whole = not failed and not found.get("short_ios") and not found.get("drop_ios")
    if n > total_ios or (whole and n != total_ios):
        document.wrong(under(path, "total_ios"), f"{total_ios} IOs, but {n} latencies")
    if io_bytes and not (total_ios and runtime):
        document.wrong(under(path, "io_bytes"), f"{io_bytes} bytes without IOs or runtime")
    if whole and runtime:
        _check_bytes(document, io_bytes, total_ios, under(path, "io_bytes"), options)


def _equal(document: Document, value: int, expected: int, path: str) -> None:
    if value != expected:
        document.wrong(path, f"{value}, but the other figures give {expected}")


def _check_bytes(
    document: Document, io_bytes: int, total_ios: int, path: str, options: dict[str, str]
) -> None:
    written = options.get("bs") or options.get("blocksize") or ""
    size = _SIZE.fullmatch(written)
    if not size or _VARIABLE_SIZE & options.keys():
        return
    block = int(size[1]) * _FACTORS[size[2].lower()]
    document.check(
        io_bytes == total_ios * block, path, f"{io_bytes} bytes are not {total_ios} IOs of {written}"
    )


def check_latency(
    document: Document, found: dict[str, Any], path: str, options: dict[str, str]
) -> tuple[tuple[tuple[float, int], ...], Histogram | None]:
    """Percentiles and bins of one metric, after they, N, min, max and mean agreed. No bins: None.

    Which percentiles have to be there follows from `options` (`percentile_list`).
    """
    n = integer(document, found, "N", path)
    least, most = integer(document, found, "min", path), integer(document, found, "max", path)
    mean = number(document, found, "mean", path)
    if not n:
        empty = not (least or most or mean or found.get("percentile") or found.get("bins"))
        document.check(empty, path, "N is 0, yet there are values")
        return (), None
    document.check(least <= mean + 1e-6 and mean <= most + 1e-6, path, "not min <= mean <= max")
    percentiles = _percentiles(document, found, path, options)
    if "bins" not in found:
        _check_range(document, percentiles, path, (least, most))
        return percentiles, None
    bins = _bins(document, mapping(document, found, "bins", path), under(path, "bins"))
    _check_bins(document, bins, path, (n, least, most, mean))
    _check_percentiles(document, percentiles, bins, path)
    return percentiles, bins


def _percentiles(
    document: Document, found: dict[str, Any], path: str, options: dict[str, str]
) -> tuple[tuple[float, int], ...]:
    """Those of fio that were asked for, without the padding keys 0.00 that fio 3.1 wrote."""
    if "percentile" not in found:
        chosen = "bins" not in found and _took_away(options)
        document.check(chosen, path, '"percentile" is missing, and no option took it away')
        return ()
    holder, inside = mapping(document, found, "percentile", path), under(path, "percentile")
    asked = _asked_percentiles(document, options)
    named = [key for key in holder if key.strip("0.")]
    if named != [f"{q:f}" for q in asked]:
        due = options.get(PERCENTILE_LIST, "those that fio prints by itself")
        document.wrong(inside, f"percentiles {', '.join(named)[:80]} are not {due[:80]}")
    values = [integer(document, holder, key, inside) for key in named]
    for key, value in zip(named, values, strict=True):
        document.check(value in BY_MIDDLE, under(inside, key), f"{value} is not the middle of a bin")
    for key, (value, next_value) in zip(named[1:], pairwise(values), strict=True):
        document.check(value <= next_value, under(inside, key), "not in order")
    return tuple(zip(asked, values, strict=True))


def _took_away(options: dict[str, str]) -> bool:
    """Whether the options leave completion latencies without percentiles."""
    if "clat_percentiles" in options:
        return options["clat_percentiles"] == "0"
    return bool({"lat_percentiles", "slat_percentiles"} & options.keys())


def _asked_percentiles(document: Document, options: dict[str, str]) -> list[float]:
    """The sorted percentiles that fio was asked for; its own list without `percentile_list`."""
    if PERCENTILE_LIST not in options:
        return USUAL_PERCENTILES
    written = options[PERCENTILE_LIST]
    if not re.fullmatch(r"\d+(?:\.\d+)?(?::\d+(?:\.\d+)?)*", written):
        document.wrong(
            "", f"{PERCENTILE_LIST}: numbers with colons between are expected, not {written[:60]!r}"
        )
    return sorted(float(each) for each in written.split(":"))


def _check_range(
    document: Document, percentiles: tuple[tuple[float, int], ...], path: str, ends: tuple[int, int]
) -> None:
    least, most = (index_of(each) for each in ends)
    for q, value in percentiles:
        within = least <= BY_MIDDLE[value].at <= most
        document.check(within, path, f"percentile {q} is not between min and max")


def _bins(document: Document, holder: dict[str, Any], path: str) -> Histogram:
    try:
        ranges = [BY_NAME[key] for key in holder]
    except KeyError as unknown:
        document.wrong(under(path, str(unknown.args[0])), "not the middle of a bin of fio's")
    counts = list(holder.values())
    if not counts or set(map(type, counts)) != {int} or min(counts) <= 0:
        document.wrong(path, "whole numbers > 0 are expected as counts")
    _, lowers, uppers = zip(*ranges, strict=True)
    if not all(map(lt, lowers, lowers[1:])):
        document.wrong(path, "the bins are not in order")
    # tens of thousands of these files are read in one study: bins are made without a call for each
    return tuple(map(tuple.__new__, repeat(Bin), zip(lowers, uppers, counts, strict=True)))


def _check_bins(document: Document, bins: Histogram, path: str, figures: tuple[int, int, int, float]) -> None:
    n, least, most, mean = figures
    lowers, uppers, counts = zip(*bins, strict=True)
    counted = sum(counts)
    if counted != n:
        document.wrong(under(path, "bins"), f"the bins hold {counted} latencies, N is {n}")
    open_end = uppers[-1] == edges(LAST).upper_ns
    if least < lowers[0] or (least >= uppers[0] and not (open_end and len(bins) == 1)):
        document.wrong(under(path, "min"), f"{least} is not in the first bin")
    if most < lowers[-1] or (most >= uppers[-1] and not open_end):
        document.wrong(under(path, "max"), f"{most} is not in the last bin")
    lower, upper = sum(map(mul, lowers, counts)) / n, sum(map(mul, uppers, counts)) / n
    if mean < lower * (1 - 1e-9) - 1e-6 or (mean > upper * (1 + 1e-9) and not open_end):
        document.wrong(
            under(path, "mean"), f"{mean} is not a mean of these bins ({lower:.0f} to {upper:.0f})"
        )


def _check_percentiles(
    document: Document, percentiles: tuple[tuple[float, int], ...], bins: Histogram, path: str
) -> None:
    if not percentiles:
        return
    true = percentile_bins(bins, [q for q, _ in percentiles], rank=fio_rank)
    for (q, value), at in zip(percentiles, true, strict=True):
        if at is None or at.middle_ns != value:
            document.wrong(
                under(path, "percentile"), f"{q} % is {value} ns, but the bins give {at and at.middle_ns}"
            )
