"""Faults that a plan (`--faults FILE.toml`) injects into the virtual cluster.

A fault names how many VirtualMachines it strikes, and may name the stage and batch it applies
to; which VMs are struck is drawn by name, so a repeated run strikes the same ones.
"""

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.cluster.port import Object
from infra.cluster.virtual.draws import Draws
from infra.errors import ProfileError

FaultKind = Literal["never-boots", "clone-fails"]
STAGE_LABEL, BATCH_LABEL, INDEX_LABEL = "virtscale.io/stage", "virtscale.io/batch", "virtscale.io/index"


class Fault(BaseModel):
    """One kind of fault, for some VirtualMachines of one stage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind = Field(description="never-boots: no sshd ever; clone-fails: the DataVolume ends Failed")
    vms: int = Field(ge=1, description="how many VirtualMachines it strikes")
    stage: Literal["deploy", "boot"] = Field(description="whose VirtualMachines")
    batch: int | None = Field(
        None, ge=1, description="only this batch; left out: every one (boot: the VMs stay the same)"
    )


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
    try:
        return FaultPlan.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ProfileError(f"faults {path}: cannot be read ({error.strerror}); name a TOML file") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"faults {path}: is not text in UTF-8 (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"faults {path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ProfileError(f"faults {path}: {key}: {first['msg'].lower()}") from error


class Faults:
    """Answers, for one object, whether a fault strikes it."""

    def __init__(self, plan: FaultPlan, draws: Draws) -> None:
        self._plan = plan
        self._draws = draws
        self._struck: dict[tuple[int, str, str], frozenset[int]] = {}

    def strikes(self, kind: FaultKind, obj: Object) -> bool:
        """Whether `obj` (which carries a VirtualMachine's stage, batch and index labels) is struck."""
        if not self._plan.fault:
            return False
        labels = obj["metadata"].get("labels") or {}
        stage, batch = labels.get(STAGE_LABEL, ""), labels.get(BATCH_LABEL, "0")
        index = int(labels.get(INDEX_LABEL, -1))
        return any(
            index in self._chosen(number, fault.vms, stage, batch)
            for number, fault in enumerate(self._plan.fault)
            if fault.kind == kind
            and fault.stage == stage
            and (fault.batch is None or batch == str(fault.batch))
        )

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
