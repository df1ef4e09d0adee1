"""PURE. Many runs in the order of time: one series per stage and size, from manifests and commit summaries.

Only finished runs that measured something are in it. A point is the median over the run's repeats
(nearest rank; one beyond its limit ranks last). Runs are joined by a line only while everything that
decides their numbers is equal; each such group has a number. What a run did not measure is a gap.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from tasks.analysis.comparability import differences
from tasks.analysis.comparison_words import share_text
from tasks.analysis.percentiles import nearest_rank
from tasks.analysis.wording import duration_or_beyond, human_duration

Manifest = Mapping[str, Any]
Summary = Mapping[str, Any]

SECOND_OF = {"deploy": "delete", "boot": "stop"}
"""The stage that a summary also tells the end-to-end time of, as `<stage>_s`."""


class Series(NamedTuple):
    """What is followed: a stage's end-to-end time at one size."""

    stage: str
    size: int

    @property
    def name(self) -> str:
        """`Deploy of 80 VMs`."""
        return f"{self.stage.capitalize()} of {self.size:,} VMs"


@dataclass(frozen=True, slots=True)
class TrendRun:
    """One run. `values` are seconds, None beyond the limit; what was not measured has no entry.

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
        differs=tuple(each.key for each in differences(latest, keys)),
        values=values,
        limits={series: limits[series.stage] for series in values},
    )


def _measured(summaries: Sequence[Summary]) -> dict[Series, list[float | None]]:
    """End-to-end times, one per repeat; None: beyond the limit."""
    found: dict[Series, list[float | None]] = {}
    for each in summaries:
        stage, size = each.get("stage"), each.get("batch")
        if stage not in SECOND_OF or size is None:
            continue
        found.setdefault(Series(stage, size), []).append(each["end_to_end_s"])
        second = SECOND_OF[stage]
        if f"{second}_s" in each:
            found.setdefault(Series(second, size), []).append(each[f"{second}_s"])
    return found


def _limits(profile: Mapping[str, Any]) -> dict[str, float | None]:
    """Each stage's limit in seconds, as the run's profile had it."""
    sections = {stage: (profile.get(stage) or {}).get("limit_s") for stage in SECOND_OF}
    return sections | {stage: profile.get(f"{stage}_limit_s") for stage in SECOND_OF.values()}


def followed(runs: Sequence[TrendRun]) -> list[Series]:
    """The largest size of each stage in the latest run that measured it, in the order of the study."""
    largest: dict[str, Series] = {}
    for run in runs:
        of_run: dict[str, Series] = {}
        for series in run.values:
            of_run[series.stage] = max(series, of_run.get(series.stage, series))
        largest |= of_run
    return [largest[stage] for stage in ("deploy", "delete", "boot", "stop") if stage in largest]


def trend_answer(runs: Sequence[TrendRun], series: Series) -> str | None:
    """The latest run against the median of the earlier valid ones that may be compared with it."""
    with_series = [run for run in runs if series in run.values]
    if not with_series:
        return None
    latest = with_series[-1]
    now = latest.values[series]
    text = f"{series.name}: {duration_or_beyond(now, latest.limits[series])} in {latest.run_id}"
    earlier = [run.values[series] for run in with_series[:-1] if _is_like(run, latest)]
    known = [value for value in earlier if value is not None]
    if not known:
        return f"{text}; no earlier valid run may be compared with it."
    usual, low, high = median(known), min(known), max(known)
    runs_text = f"{len(known)} earlier comparable run{'s' if len(known) > 1 else ''}"
    spread = f"{human_duration(usual)}, {human_duration(low)} to {human_duration(high)}"
    if now is None or not usual:
        return f"{text}; the median of {runs_text} is {spread}."
    return f"{text}, {share_text(now / usual - 1)} against the median of {runs_text} ({spread})."


def _is_like(run: TrendRun, latest: TrendRun) -> bool:
    return run.group == latest.group and run.verdict == "valid"
