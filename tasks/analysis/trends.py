"""PURE. Many runs in the order of time: one series per number and size, from manifests and commit summaries.

Only finished runs that measured something are in it. A point is the median over the run's repeats
(nearest rank; one beyond its limit ranks last). Runs are joined by a line only while everything that
decides their numbers is equal; each such group has a number. What a run did not measure is a gap.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from tasks.analysis.comparability import differences
from tasks.analysis.comparison_words import share_text, value_text
from tasks.analysis.percentiles import nearest_rank

Manifest = Mapping[str, Any]
Summary = Mapping[str, Any]

SECOND_OF = {"deploy": "delete", "boot": "stop"}
"""The stage that a summary also tells the end-to-end time of, as `<stage>_s`."""


STAGES = ("deploy", "delete", "boot", "stop", "io", "latency")
END_TO_END = "end to end"
_IO = {"iops": ("IOPS", "IOPS"), "p99_us": ("p99", "us")}
"""Column of an io cell's summary to its name and unit."""


class Kind(NamedTuple):
    """A number that runs have: `deploy`, `end to end`, in `s`; `io`, `4 KiB read p99`, in `us`."""

    stage: str
    what: str = END_TO_END
    unit: str = "s"

    @property
    def title(self) -> str:
        """`deploy end to end`, `IO 4 KiB read p99`, `longest latency of jitterdebugger`."""
        if self.stage == "latency":
            return f"longest latency of {self.what}"
        return f"{'IO' if self.stage == 'io' else self.stage} {self.what}"


class Series(NamedTuple):
    """What is followed: a number at one size (VMs; 0 where it has none)."""

    kind: Kind
    size: int

    @property
    def name(self) -> str:
        """`Deploy of 80 VMs`."""
        title = self.kind.title.removesuffix(f" {END_TO_END}")
        of = f" of {self.size:,} VMs" if self.size else ""
        return f"{title[0].upper()}{title[1:]}{of}"


@dataclass(frozen=True, slots=True)
class TrendRun:
    """One run. `values` are in their series' unit, None beyond the limit; what was not measured has no entry.

    `group` numbers runs that may be compared, in the order of their first; `differs` are the keys in
    which the run differs from the latest.
    """

    run_id: str
    started_at: str
    profile: str
    world: str
    verdict: str
    group: int
    differs: tuple[str, ...]
    values: Mapping[Series, float | None]
    limits: Mapping[Series, float | None]


def trend(runs: Sequence[tuple[Manifest, Sequence[Summary]]]) -> list[TrendRun]:
    """Finished runs, oldest first; each comes with the summaries of its last complete attempts."""
    finished = [run for run in runs if run[0]["finished_at"] is not None and run[0]["verdict"] is not None]
    ordered = sorted(finished, key=lambda run: (run[0]["started_at"], run[0]["run_id"]))
    if not ordered:
        return []
    latest = ordered[-1][0].get("comparability") or {}
    groups: dict[str, int] = {}
    return [_trend_run(manifest, summaries, (latest, groups)) for manifest, summaries in ordered]


def _trend_run(
    manifest: Manifest, summaries: Sequence[Summary], known: tuple[Mapping[str, Any], dict[str, int]]
) -> TrendRun:
    latest, groups = known
    keys = manifest.get("comparability") or {}
    group = groups.setdefault(json.dumps(keys, sort_keys=True, default=str), len(groups) + 1)
    limits = _limits(manifest["profile"])
    values = {series: nearest_rank(found, 50.0) for series, found in _measured(summaries).items()}
    return TrendRun(
        run_id=manifest["run_id"],
        started_at=manifest["started_at"],
        profile=manifest["profile"]["name"],
        world=manifest["world"],
        verdict=manifest["verdict"],
        group=group,
        differs=tuple(dict.fromkeys(each.key for each in differences(latest, keys))),
        values=values,
        limits={series: limits.get(series.kind.stage) for series in values},
    )


def _measured(summaries: Sequence[Summary]) -> dict[Series, list[float | None]]:
    """Values, one per repeat; None: beyond the limit."""
    found: dict[Series, list[float | None]] = {}
    for summary in summaries:
        for series, value in _values(summary):
            found.setdefault(series, []).append(value)
    return found


def _values(summary: Summary) -> Iterator[tuple[Series, float | None]]:
    """What one commit says: times of a batch, rate and tail of an io cell, or what a latency tool found."""
    stage, size = summary.get("stage"), summary.get("batch")
    if stage in SECOND_OF and size is not None:
        yield Series(Kind(stage), size), summary["end_to_end_s"]
        second = SECOND_OF[stage]
        if f"{second}_s" in summary:
            yield Series(Kind(second), size), summary[f"{second}_s"]
    elif "iops" in summary:
        vms, block_kib, pattern = str(summary["cell"]).split("-")
        for column, (name, unit) in _IO.items():
            if summary[column] is not None:
                yield Series(Kind("io", f"{block_kib} KiB {pattern} {name}", unit), int(vms)), summary[column]
    elif stage == "latency" and "segments" in summary and summary["max_us"] is not None:
        yield Series(Kind("latency", summary["tool"], "us"), 0), summary["max_us"]


def _limits(profile: Mapping[str, Any]) -> dict[str, float | None]:
    """Each stage's limit in seconds, as the run's profile had it."""
    sections = {stage: (profile.get(stage) or {}).get("limit_s") for stage in SECOND_OF}
    return sections | {stage: profile.get(f"{stage}_limit_s") for stage in SECOND_OF.values()}


def followed(runs: Sequence[TrendRun]) -> list[Series]:
    """The largest size of each number in the latest run that measured it, in the order of the study."""
    largest: dict[Kind, Series] = {}
    for run in runs:
        largest |= {series.kind: series for series in sorted(run.values)}
    return [largest[kind] for kind in sorted(largest, key=lambda kind: (STAGES.index(kind.stage), kind))]


def trend_answer(runs: Sequence[TrendRun], series: Series) -> str | None:
    """The latest run against the median of the earlier valid ones that may be compared with it."""
    with_series = [run for run in runs if series in run.values]
    if not with_series:
        return None
    latest = with_series[-1]
    now = latest.values[series]
    unit, limit = series.kind.unit, latest.limits[series]
    text = f"{series.name}: {value_text(now, limit, unit)} in {latest.run_id}"
    earlier = [run.values[series] for run in with_series[:-1] if _is_like(run, latest)]
    known = [value for value in earlier if value is not None]
    if not known:
        return f"{text}; no earlier valid run may be compared with it."
    usual = median(known)
    runs_text = f"{len(known)} earlier comparable run{'s' if len(known) > 1 else ''}"
    middle, low, high = (value_text(value, limit, unit) for value in (usual, min(known), max(known)))
    spread = f"{middle}, {low} to {high}"
    if now is None or not usual:
        return f"{text}; the median of {runs_text} is {spread}."
    return f"{text}, {share_text(now / usual - 1)} against the median of {runs_text} ({spread})."


def _is_like(run: TrendRun, latest: TrendRun) -> bool:
    return run.group == latest.group and run.verdict == "valid"
