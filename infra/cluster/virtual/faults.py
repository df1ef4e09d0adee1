"""Faults that a plan (`--faults FILE.toml`) injects into the virtual cluster.

Some strike VirtualMachines (so many, drawn by name, or named), others happen at a time after a
batch was released. Each may name the stage, batch and attempt that it applies to. Everything is
drawn by seed and name, so a repeated run is struck alike.
"""

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from infra.cluster.port import Object
from infra.cluster.virtual.draws import Draws
from infra.errors import ProfileError
from infra.explain import problem_of, syntax

StruckKind = Literal["never-boots", "clone-fails", "clone-fallback"]
TimedKind = Literal[
    "node-lost",
    "watch-gone",
    "watch-ends",
    "throttle",
    "webhook-errors",
    "slow-snapshots",
    "foreign-load",
    "api-slow",
    "api-away",
]
FaultKind = Literal[StruckKind, TimedKind]
STRUCK: tuple[str, ...] = ("never-boots", "clone-fails", "clone-fallback")
STAGE_LABEL, BATCH_LABEL, INDEX_LABEL = "virtscale.io/stage", "virtscale.io/batch", "virtscale.io/index"
VM_NAME = re.compile(r"^(?:d(?P<batch>[1-9]\d*)|b)-(?P<index>\d{4,7})$")
"""A VM without its run's id in front: `d100-0007`, `b-0007`."""

_COMMON = frozenset(("kind", "stage", "batch", "attempt"))
_TIMED = _COMMON | {"at_s", "for_s"}
_KEYS: dict[str, frozenset[str]] = {
    "never-boots": _COMMON | {"vms", "vm"},
    "clone-fails": _COMMON | {"vms", "vm"},
    "clone-fallback": _COMMON | {"vms", "vm", "copy_s"},
    "node-lost": _TIMED | {"nodes"},
    "watch-gone": _TIMED,
    "watch-ends": _TIMED | {"every_s"},
    "throttle": _TIMED | {"share"},
    "webhook-errors": _TIMED | {"share"},
    "slow-snapshots": _TIMED | {"factor"},
    "foreign-load": _TIMED | {"pods"},
    "api-slow": _TIMED | {"answer_s"},
    "api-away": _TIMED,
}
"""Which keys mean something for which kind."""
_STAGES: dict[str, tuple[str, ...]] = {
    "never-boots": ("boot",),
    "clone-fails": ("deploy", "boot"),
    "clone-fallback": ("deploy",),
    "node-lost": ("boot",),
    "foreign-load": ("boot",),
    "slow-snapshots": ("deploy",),
}
"""Stages in which a kind has an effect that is measured; the others: all four."""


class Moment(NamedTuple):
    """What is measured now: stage (deploy, delete, boot, stop), batch, attempt."""

    stage: str
    batch: int
    attempt: int


class Fault(BaseModel):
    """One fault. Times count from the release of a batch."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: FaultKind = Field(description="what goes wrong")
    stage: Literal["deploy", "delete", "boot", "stop"] | None = Field(
        None, description="only in this stage; VMs and nodes: whose"
    )
    batch: int | None = Field(None, ge=1, description="only this batch; left out: every one")
    attempt: int | None = Field(None, ge=1, description="only this attempt; left out: every one")
    vms: int | None = Field(None, ge=1, description="how many VirtualMachines it strikes")
    vm: tuple[str, ...] = Field((), description="which ones, without the run's id: d100-0007, b-0007")
    at_s: float = Field(0.0, ge=0, description="begins so long after the release, seconds")
    for_s: float = Field(60.0, gt=0, description="lasts, seconds")
    every_s: float = Field(5.0, gt=0, description="watches end so often, seconds")
    share: float = Field(0.5, gt=0, le=1, description="share of our requests that is refused")
    factor: float = Field(10.0, gt=1, description="restores take so many times longer")
    copy_s: float = Field(105.0, gt=0, description="a host-assisted copy takes, seconds")
    answer_s: float = Field(2.0, gt=0, description="added to every answer, seconds")
    nodes: int = Field(1, ge=1, description="how many nodes are lost")
    pods: int = Field(200, ge=1, description="how many foreign pods come")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        useless = sorted(self.model_fields_set - _KEYS[self.kind])
        if useless:
            raise ValueError(f"{useless[0]} means nothing to {self.kind}; it has {_listed(_KEYS[self.kind])}")
        stages = _STAGES.get(self.kind)
        if stages and self.stage not in stages:
            raise ValueError(f"stage must be {' or '.join(stages)} for {self.kind}")
        if self.kind in STRUCK and (self.vms is None) == (not self.vm):
            raise ValueError(f"{self.kind} needs either vms (how many) or vm (which)")
        for name in self.vm:
            if not VM_NAME.match(name):
                raise ValueError(f"vm {name!r} is no VM: names are like d100-0007 (deploy) or b-0007 (boot)")
        return self

    def applies(self, moment: Moment) -> bool:
        """Whether the plan names this stage, batch and attempt."""
        return (
            self.stage in (None, moment.stage)
            and self.batch in (None, moment.batch)
            and self.attempt in (None, moment.attempt)
        )

    def names(self, stage: str, batch: str, index: int) -> bool:
        """Whether `vm` has this one."""
        found = (VM_NAME.match(name) for name in self.vm)
        return any(
            match is not None
            and int(match["index"]) == index
            and (match["batch"] == batch if stage == "deploy" else match["batch"] is None)
            for match in found
        )


def _listed(keys: frozenset[str]) -> str:
    return ", ".join(name for name in Fault.model_fields if name in keys)


class FaultPlan(BaseModel):
    """All faults of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fault: tuple[Fault, ...] = ()


def load_faults(path: str) -> FaultPlan:
    """Read a fault plan; an empty path is a plan without faults.

    Raises:
        ProfileError: no such file, TOML syntax, unknown key, wrong value.
    """
    if not path:
        return FaultPlan()
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return FaultPlan.model_validate(tomllib.loads(text))
    except OSError as error:
        raise ProfileError(f"faults {path}: cannot be read ({error.strerror}); name a TOML file") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"faults {path}: is not text in UTF-8 (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"faults {path}: {syntax(str(error), text)}") from error
    except ValidationError as error:
        raise ProfileError(f"faults {path}: {_said(error.errors(include_url=False)[0])}") from error


def _said(problem: ErrorDetails) -> str:
    """What is wrong, in which `[[fault]]`, counted from 1."""
    loc = problem["loc"]
    if len(loc) < 2 or not isinstance(loc[1], int):
        return problem_of(problem, FaultPlan)
    inner: Any = {**problem, "loc": loc[2:]}
    return f"fault {loc[1] + 1}: {problem_of(inner, Fault)}"


class Faults:
    """Answers, for one object, whether a fault strikes it, and holds what happens to nodes and storage."""

    def __init__(self, plan: FaultPlan, draws: Draws) -> None:
        self.plan = plan
        self.lost: dict[str, asyncio.Future[None]] = {}
        self.slowness = 1.0
        self.moment: Moment | None = None
        self._draws = draws
        self._struck: dict[tuple[int, str, str], frozenset[int]] = {}

    def strikes(self, kind: str, obj: Object) -> bool:
        """Whether `obj` (which carries a VirtualMachine's stage, batch and index labels) is struck."""
        return bool(self.plan.fault) and self.striking(kind, obj) is not None

    def striking(self, kind: str, obj: Object) -> Fault | None:
        """The fault that strikes an object."""
        labels = obj["metadata"].get("labels") or {}
        stage, batch = labels.get(STAGE_LABEL, ""), labels.get(BATCH_LABEL, "0")
        vm = stage, batch, int(labels.get(INDEX_LABEL, -1))
        moment = self._moment(stage, int(batch))
        for number, fault in enumerate(self.plan.fault):
            if fault.kind == kind and fault.applies(moment) and self._has(number, fault, vm):
                return fault
        return None

    def _moment(self, stage: str, size: int) -> Moment:
        """What a VM of a stage is measured in; boot VMs are made for the largest storm, and are in others."""
        if self.moment is None:
            return Moment(stage, size, 1)
        return Moment(stage, self.moment.batch if stage == "boot" else size, self.moment.attempt)

    def _has(self, number: int, fault: Fault, vm: tuple[str, str, int]) -> bool:
        stage, batch, index = vm
        if fault.vms is None:
            return fault.names(stage, batch, index)
        return index in self._chosen(number, fault.vms, stage, batch)

    def _chosen(self, number: int, count: int, stage: str, batch: str) -> frozenset[int]:
        """`count` indices below the batch's size, the same in every process."""
        key = (number, stage, batch)
        if key not in self._struck:
            size = max(int(batch), count)
            ranked = sorted(
                range(size), key=lambda i: self._draws.uniform(f"fault {number}", f"{stage} {batch} {i}")
            )
            self._struck[key] = frozenset(ranked[:count])
        return self._struck[key]

    async def reach(self, node: str) -> None:
        """Wait until a node that was lost is back."""
        while node in self.lost:
            await asyncio.shield(self.lost[node])
