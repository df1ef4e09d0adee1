"""PURE. The sections of the report: question, answer, chart, table, method; only for stages with data."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from tasks.analysis import answers
from tasks.analysis.distribution import distributions, error_of, first_boots_and_reboots
from tasks.analysis.doubling import TOLERANCE
from tasks.analysis.placement import Balance
from tasks.analysis.steps import step_gaps
from tasks.analysis.summaries import headline_step, observed_steps, summaries
from tasks.analysis.wording import human_duration, percent, step_name
from tasks.charts.boot_steps import boot_steps_chart
from tasks.charts.end_to_end import end_to_end_chart
from tasks.charts.look import Caption
from tasks.charts.per_vm import Distributions, per_vm_chart
from tasks.charts.placement import nodes_chart, placement_chart
from tasks.records import VM_TABLES
from tasks.report.io import io_sections
from tasks.report.latency import latency_sections
from tasks.report.section import Section as Section
from tasks.report.tables import Table, table
from tasks.report.tuning import tuning_section

Frames = Mapping[str, pl.DataFrame]


_QUESTIONS = {
    "deploy": "How long does a deploy take, and does it scale linearly?",
    "boot": "How long does a boot storm take, and where does it bend?",
    "delete": "How long does it take to delete the VMs?",
    "stop": "How long does it take to stop the VMs?",
}
_CLOCKS = {
    "deployed": "VM stopped, DataVolume succeeded and PVC bound hold together for the first time",
    "ssh_ready": "a command over SSH succeeds in the guest",
    "running": "the VirtualMachineInstance is reported Running (no guests are probed in this world)",
    "volume_gone": "the VM, its DataVolume, its PVC and its PV no longer exist",
    "halted": "the VM is reported stopped and its instance is gone",
}
_READ_CURVE = (
    "Points: a batch, with its error bar where the bound is known. Dashed grey: linear growth through the "
    "batch with the least time per VM. Small numbers: growth over the step. Shaded: where growth stops being "
    "linear. A triangle: not complete within the limit."
)
_READ_PER_VM = (
    "Band: p5 to p95 of the VMs. Line with points: p50. Short tick: p99. Long tick: the last VM. "
    "A triangle at the limit counts the VMs that never got there."
)
_READ_STEPS = (
    "Each bar is one batch, its pieces in the order of the numbers in the legend: the median time that "
    "the step added after all earlier ones. At the end of the bar: the sum of those medians."
)
_READ_PLACEMENT = (
    "Bar: emptiest to fullest node. Point: mean. Grey ticks: what an even spread of whole VMs would be."
)
_RULE = (
    "Linear: time grows at most as fast as the number of VMs. The curve bends in the first step that grows "
    f"more than {percent(TOLERANCE)} faster than that, if every larger batch confirms it"
)
_TOO_SMALL = "A step that the error bounds of its two times put on both sides of that is too small to tell."


def study_sections(frames: Frames, caption: Caption) -> list[Section]:
    """The sections of every stage that has data, in the order of the study."""
    found = [
        _end_to_end(frames, "deploy", caption),
        _per_vm(frames, "deploy", caption),
        _end_to_end(frames, "boot", caption),
        _per_vm(frames, "boot", caption),
        _boot_steps(frames, caption),
        _placement(frames, caption),
        _end_to_end(frames, "delete", caption),
        _end_to_end(frames, "stop", caption),
        *io_sections(frames, caption),
        *latency_sections(frames, caption),
        tuning_section(frames),
    ]
    return [section for section in found if section is not None]


def _headline(frames: Frames, stage: str) -> str | None:
    return headline_step(stage, observed_steps(frames["percentiles"], stage))


def _end_to_end(frames: Frames, stage: str, caption: Caption) -> Section | None:
    answer = answers.end_to_end_answer(frames["batches"], stage)
    if answer is None:
        return None
    rows = summaries(frames["batches"], frames["percentiles"]).filter(pl.col("stage") == stage)
    shown = rows.select(_SUMMARY).sort("batch", "repeat")
    chart = end_to_end_chart(frames["batches"], stage, caption, answer)
    method = [_clock(_headline(frames, stage), "the last VM of the batch"), _counts(rows)]
    method += _rule(sorted(rows.get_column("batch").unique().to_list()))
    tables = [table(f"{stage} batches", shown, "batches")]
    return Section(stage, _QUESTIONS[stage], answer, method, [(chart, _READ_CURVE)], tables)


def _rule(sizes: Sequence[int]) -> list[str]:
    """What linear means here; steps that are no doublings are named with what they are compared with."""
    others = [
        f"growth of {b:,} over {a:,} VMs is compared with {b / a:.4g}"
        for a, b in pairwise(sizes)
        if b != 2 * a
    ]
    return ["; ".join([_RULE, *others]) + ".", _TOO_SMALL] if len(sizes) > 1 else []


_SUMMARY = [
    "batch", "repeat", "n", "n_ok", "n_timeout", "n_failed", "n_lost", "end_to_end_s", "end_to_end_error_s",
    "study_end_to_end_s", "step", "p50_s", "p50_error_s", "p90_s", "p95_s", "p99_s", "p99_error_s", "max_s",
    "limit_s", "verdict",
]  # fmt: skip


def _clock(step: str | None, who: str) -> str:
    end = _CLOCKS.get(step or "", "the end point is reached")
    return (
        f"Starts: the batch's release, one moment for all its VMs. Stops for {who}: {end}. "
        "Both on the observer's monotonic clock."
    )


def _counts(rows: pl.DataFrame) -> str:
    n, n_ok = (int(rows.get_column(name).sum()) for name in ("n", "n_ok"))
    limits = sorted(limit for limit in rows.get_column("limit_s").unique().to_list() if limit is not None)
    limit = " and ".join(map(human_duration, limits)) or "none stored"
    return f"n = {n:,} VMs in {rows.height:,} batches, {n - n_ok:,} of them not ok; limit {limit}."


def _per_vm(frames: Frames, stage: str, caption: Caption) -> Section | None:
    step, vms = _headline(frames, stage), frames[VM_TABLES[stage]]
    if step is None or vms.is_empty():
        return None
    limit_s = _limit(frames, stage)
    rows = distributions(vms, step)
    answer = answers.per_vm_answer(rows, step, limit_s) or ""
    shape = Distributions(f"{stage.capitalize()}: {step_name(step)}, per VM", rows, limit_s)
    drawn = any(row["p50_s"] is not None for row in rows)
    chart = per_vm_chart(shape, caption, answer) if drawn else None
    names = ["batch", "n", "n_censored", "p5_s", "p50_s", "p50_error_s", "p95_s", "p99_s", "p99_error_s"]
    names += ["max_s", "max_error_s"]
    shown = (
        pl.DataFrame(rows, infer_schema_length=None)
        .select(names)
        .with_columns(limit_s=pl.lit(limit_s, pl.Float64))
    )
    word = step_name(step)
    tables = [
        table(f"{stage} per VM, {word}, from release", shown, VM_TABLES[stage]),
        table(
            f"{stage} percentiles of all steps, from release and from request",
            _steps(frames, stage),
            "percentiles",
        ),
        *_ordinals(frames, stage, step),
    ]
    n, censored = (sum(row[name] for row in rows) for name in ("n", "n_censored"))
    method = [
        _clock(step, "each VM"),
        f"n = {n:,}, {censored:,} right-censored: they count in every percentile and rank last; a percentile "
        "that falls among them is beyond the limit. Nearest-rank over all VMs of a batch.",
    ]
    question = {
        "deploy": "How long does a single VM of a deploy wait?",
        "boot": "How long does a single VM boot?",
    }
    charts = [(chart, _READ_PER_VM)] if chart else []
    return Section(f"{stage}-vm", question[stage], answer, method, charts, tables)


def _limit(frames: Frames, stage: str) -> float | None:
    limit = frames["batches"].filter(pl.col("stage") == stage).get_column("limit_s").max()
    return limit if isinstance(limit, float) else None


def _steps(frames: Frames, stage: str) -> pl.DataFrame:
    """Percentiles of every step as one row per batch, step and basis."""
    rows = frames["percentiles"].filter(pl.col("stage") == stage)
    keys = ["batch", "repeat", "step", "basis", "n", "n_ok", "n_censored", "limit_s"]
    quantiles = {"p50_s": 50.0, "p90_s": 90.0, "p95_s": 95.0, "p99_s": 99.0, "max_s": 100.0}
    values = [pl.col("value_s").filter(pl.col("q") == q).first().alias(name) for name, q in quantiles.items()]
    values += [
        pl.col("error_s").filter(pl.col("q") == q).first().alias(error_of(name))
        for name, q in quantiles.items()
    ]
    return rows.group_by(keys, maintain_order=True).agg(values).sort("batch", "repeat", maintain_order=True)


def _ordinals(frames: Frames, stage: str, step: str) -> list[Table]:
    """First boots beside reboots, where a run has both."""
    if stage != "boot":
        return []
    rows = first_boots_and_reboots(frames["vm_boots"], step)
    mixed = any(row["first_boots"] for row in rows) and any(row["reboots"] for row in rows)
    return (
        [table("first boots and reboots", pl.DataFrame(rows, infer_schema_length=None), "vm_boots")]
        if mixed
        else []
    )


def _boot_steps(frames: Frames, caption: Caption) -> Section | None:
    steps = observed_steps(frames["percentiles"], "boot")
    gaps = step_gaps(frames["vm_boots"], steps) if steps else []
    answer = answers.steps_answer(gaps)
    if answer is None:
        return None
    shown = pl.DataFrame(gaps, infer_schema_length=None).drop("order").sort("batch", maintain_order=True)
    shown = shown.with_columns(limit_s=pl.lit(_limit(frames, "boot"), pl.Float64))
    method = [
        "A step adds the time from the latest earlier step (for the first: the release) to itself, 0 when it "
        "was seen before one of them. Median over all VMs of a batch; who never reached the step ranks last.",
        "Steps are when they were reported to the observer; repeats of a size are pooled.",
    ]
    charts = [(boot_steps_chart(gaps, caption, answer), _READ_STEPS)]
    tables = [table("boot steps", shown, "vm_boots")]
    return Section("boot-steps", "Where does the time of a boot go?", answer, method, charts, tables)


def _placement(frames: Frames, caption: Caption) -> Section | None:
    placements = frames["placements"]
    answer = answers.placement_answer(placements)
    if answer is None:
        return None
    spreads = answers.balances(placements)
    shown = [{"batch": batch, **_balance_row(spread)} for batch, spread in spreads]
    method = [
        "VMs per schedulable node when the batch was up; nodes without a VM count as 0.",
        "CV: population standard deviation over the mean. Ideal: VMs divided by nodes, in whole VMs.",
    ]
    charts = [
        (placement_chart(spreads, caption, answer), _READ_PLACEMENT),
        (nodes_chart(placements, caption, answer), "One dot per node, stacked over its number of VMs."),
    ]
    tables = [table("VMs per node", pl.DataFrame(shown, infer_schema_length=None), "placements")]
    return Section("placement", "Are VMs balanced over the nodes?", answer, method, charts, tables)


def _balance_row(spread: Balance) -> dict[str, Any]:
    names = ("nodes", "vms", "min", "mean", "max", "cv", "spread", "ideal_spread")
    return {name: getattr(spread, name) for name in names}
