"""PURE. A whole comparison: both manifests, every metric, what was allowed, what has to be said with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.analysis.comparability import Difference, differences, told, unknown_keys
from tasks.analysis.compared_metrics import Frames, readings_of
from tasks.analysis.comparison import Comparison, Metric, Readings, Rules, compare
from tasks.analysis.wording import listed
from tasks.profile import Compare

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two finished runs; `differing` are the values of keys that differ and were allowed to."""

    baseline: Manifest
    run: Manifest
    rules: Rules
    metrics: Sequence[Comparison]
    differing: Sequence[Difference]
    notes: Sequence[str]

    @property
    def regressions(self) -> list[str]:
        """Names of the metrics that got worse beyond their threshold."""
        return [each.metric.name for each in self.metrics if each.decision == "regression"]

    @property
    def names(self) -> tuple[str, str]:
        """Run ids of baseline and run."""
        return str(self.baseline["run_id"]), str(self.run["run_id"])

    @property
    def differing_told(self) -> list[str]:
        """What differs in words, the first few values of each key."""
        return told(self.differing)

    @property
    def is_valid(self) -> bool:
        """Whether both runs' own verdicts are."""
        return all(each["verdict"] == "valid" for each in (self.baseline, self.run))

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        baseline, run = self.names
        if self.regressions:
            return f"{run} is worse than {baseline}: {listed(self.regressions)}."
        open_ = [m.metric.name for m in self.metrics if m.decision in {"undecided", "beyond the limit"}]
        if open_:
            return f"No regression of {run} against {baseline} is shown; not decided: {listed(open_)}."
        return f"No regression of {run} against {baseline}."


def compared(baseline: tuple[Manifest, Frames], run: tuple[Manifest, Frames]) -> RunComparison:
    """Compare what was stored of two runs by the rules of the baseline's profile."""
    (old, old_frames), (new, new_frames) = baseline, run
    before, now = readings_of(old_frames), readings_of(new_frames)
    rules = rules_of(old)
    metrics = compare(before, now, rules)
    differing = differences(old.get("comparability") or {}, new.get("comparability") or {})
    return RunComparison(old, new, rules, metrics, differing, _notes((old, before), (new, now), metrics))


def rules_of(manifest: Manifest) -> Rules:
    """What a run's profile states; defaults for a run that was stored before profiles did."""
    section = Compare.model_validate((manifest.get("profile") or {}).get("compare") or {})
    return Rules(
        section.confidence,
        {
            "end_to_end": section.end_to_end_share,
            "percentile": section.percentile_share,
            "io_rate": section.io_rate_share,
            "io_latency": section.io_latency_share,
            "jitter": section.jitter_share,
        },
    )


def _notes(
    old: tuple[Manifest, Mapping[Metric, Readings]],
    new: tuple[Manifest, Mapping[Metric, Readings]],
    metrics: Sequence[Comparison],
) -> list[str]:
    (baseline, before), (run, now) = old, new
    notes = [
        f"Run {each['run_id']} is {each['verdict']}: {'; '.join(each['reasons'][:3])}."
        for each in (baseline, run)
        if each["verdict"] != "valid"
    ]
    unknown = unknown_keys(baseline.get("comparability") or {}, run.get("comparability") or {})
    if unknown:
        notes.append(f"Not known of either run, so not compared: {listed(unknown)}.")
    versions = [(each.get("versions") or {}).get("virtscale") for each in (baseline, run)]
    if versions[0] != versions[1]:
        notes.append(f"Measured by virtscale {versions[0]} and {versions[1]}.")
    for name, mine, other in ((baseline["run_id"], before, now), (run["run_id"], now, before)):
        alone = [metric.name for metric in mine if metric not in other]
        notes += [f"Only {name} has {listed(alone)}."] if alone else []
    return [*notes, *_unpaired(before, now), *_of_units(metrics)]


def _unpaired(before: Mapping[Metric, Readings], now: Mapping[Metric, Readings]) -> list[str]:
    alone = sum(len(set(before[metric]) ^ set(now[metric])) for metric in before if metric in now)
    return [f"{alone:,} values of batches that only one run measured are left out."] if alone else []


def _of_units(metrics: Sequence[Comparison]) -> list[str]:
    unbounded = [each.metric.name for each in metrics if not each.bounded]
    notes = [
        f"Error bounds of {listed(unbounded)} are not known of every batch: there is no interval, and the "
        "change alone decides nothing."
    ] if unbounded else []  # fmt: skip
    if any(each.by == "sizes" and each.units > 1 for each in metrics):
        notes.append(
            "One repeat: the sizes are the units, and a change that differs between sizes widens the "
            "interval; with repeats (deploy.repeats, boot.repeats) intervals are narrower."
        )
    elif metrics and all(each.units < 2 for each in metrics):
        notes.append(
            "One batch of one repeat has no spread, so nothing is decided; measure repeats or more sizes."
        )
    return notes
