"""How much a deploy and a boot storm hang on each assumption of a virtual cluster: halved, and doubled.

Every variant is a whole small run of the real stages on a cluster that differs in one constant, with the
same seed and the same names, so that every draw is the same and the difference is the constant's.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w
from pydantic import ValidationError

from flows.study import conduct
from infra.cluster.virtual.constants import constants, is_assumption, stated, value_of, with_value
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.part import Rate
from infra.results.open import open_store
from infra.results.read import scan
from tasks.profile import Profile
from tasks.records import TABLES
from tasks.run import RunRequest

HALVED, DOUBLED = 0.5, 2.0
RUN_ID = "sensitivity"
VARIED_STAGES = ("deploy", "boot")
OTHER_STAGES = (
    *("ceph.", "latency.", "openshift.", "untuned.", "probing."),
    *("nodes.realtime", "cdi_clone.import_s", "csi.snapshot_s", "requests_per_s", "golden_sources"),
    *("csi.delete", "attach.detach", "virt.domain_stop", "kubelet.stop", "api.history"),
)
"""Constants (or their beginnings) that no deploy and no boot waits for: of io, latency, delete, stop."""
NO_EFFECT = 0.005
"""A smaller change of both times is said to be none."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run to do: `description` on which `profile` is measured."""

    description: Description
    profile: Profile
    seed: int


Times = Mapping[str, float | None]
"""Stage to end to end, seconds; None: not all VMs were done within the limit."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One constant: its value, and what the stages take with half and with twice of it.

    None for a side that the constant cannot have (half of one worker thread).
    """

    constant: str
    value: Any
    halved: Times | None
    doubled: Times | None

    def effect(self, base: Times) -> float:
        """The largest change of any time, as a factor above 1; infinite when a stage no longer finishes."""
        sides = [side for side in (self.halved, self.doubled) if side is not None]
        return max((factor(side[stage], base[stage]) for side in sides for stage in base), default=1.0)


def factor(time_s: float | None, base_s: float | None) -> float:
    """How many times longer, or shorter: always 1 or more."""
    if time_s is None or base_s is None:
        return 1.0 if time_s is base_s else math.inf
    return max(time_s / base_s, base_s / time_s) if time_s and base_s else 1.0


def assumptions_of(description: Description) -> list[str]:
    """The constants that nobody measured on this cluster and that deploys or storms may depend on.

    What the description's file states is no assumption, unless the file says so.
    """
    own = set(stated(description))
    named = set(description.assumptions)
    marked = {name for name, field in constants(Description) if is_assumption(field)}
    return [
        name
        for name, _ in constants(Description)
        if (name in named or (name in marked and name not in own)) and can_vary(description, name)
    ]


def can_vary(description: Description, name: str) -> bool:
    """Whether the constant is a quantity other than 0 that deploys or storms may depend on."""
    value = value_of(description, name)
    if name.startswith(OTHER_STAGES) or isinstance(value, bool):
        return False
    return value.qps > 0 if isinstance(value, Rate) else isinstance(value, int | float) and value > 0


def scaled(description: Description, name: str, by: float) -> Description | None:
    """The description with a constant multiplied; None when that is no other value, or none at all."""
    value = value_of(description, name)
    wanted: Any = _times(value, by)
    if wanted == value:
        return None
    try:
        return with_value(description, name, wanted)
    except ValidationError:
        return None


def _times(value: Any, by: float) -> Any:
    if isinstance(value, Rate):
        return Rate(qps=value.qps * by, burst=max(1, round(value.burst * by)))
    return max(1, round(value * by)) if isinstance(value, int) else value * by


def small(profile: Profile, size: int) -> Profile:
    """The profile's deploy and boot with one batch of `size` VMs each, and nothing else."""
    one = {"batches": (size,), "repeats": 1}
    stages = tuple(each for each in profile.stages if each in ("golden-image", *VARIED_STAGES))
    update: dict[str, Any] = {
        stage: getattr(profile, stage).model_copy(update=one) for stage in VARIED_STAGES
    }
    return profile.model_copy(update={**update, "stages": stages})


def measured(case: Case) -> Times:
    """Run one case from a fresh cluster to its last batch; nothing is kept."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.toml"
        path.write_text(tomli_w.dumps(case.description.model_dump(mode="json", exclude_none=True)))
        request = RunRequest(
            run_id=RUN_ID,
            profile=case.profile,
            cluster=f"virtual:{path}",
            store=str(Path(folder) / "store"),
            seed=case.seed,
            keep=True,
        )
        conduct(request)
        batches = scan(open_store(request.store, writable=False), RUN_ID, "batches", TABLES["batches"])
    ends = {row["stage"]: row["end_to_end_s"] for row in batches.iter_rows(named=True)}
    return {stage: ends[stage] for stage in VARIED_STAGES if stage in ends}


def sensitivities(case: Case, names: Sequence[str], processes: int) -> Iterator[Times | Sensitivity]:
    """First the times of the case as it is, then one `Sensitivity` for each constant, as they end.

    Raises:
        VirtscaleError: a variant could not be run.
    """
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))

    def begun(name: str, by: float) -> Future[Times] | None:
        variant = scaled(case.description, name, by)
        if variant is None:
            return None
        return pool.submit(measured, Case(variant, case.profile, case.seed))

    try:
        base = pool.submit(measured, case)
        sides = [(begun(name, HALVED), begun(name, DOUBLED)) for name in names]
        yield base.result()
        for name, (halved, doubled) in zip(names, sides, strict=True):
            value = value_of(case.description, name)
            yield Sensitivity(
                name, value, halved.result() if halved else None, doubled.result() if doubled else None
            )
    finally:
        pool.shutdown(cancel_futures=True)
