"""Injected faults: which VMs they strike, and what a wrong plan is told."""

from pathlib import Path
from typing import Any

import pytest

from infra.cluster.kinds import VM
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.faults import Fault, FaultPlan, Faults, load_faults
from infra.errors import ProfileError
from tests.unit.virtual.conftest import manifest


def struck(fault: Fault, seed: int = 1, stage: str = "boot", batch: int = 100) -> list[int]:
    faults = Faults(FaultPlan(fault=(fault,)), Draws(seed))
    labels = {"virtscale.io/stage": stage, "virtscale.io/batch": str(batch)}
    vms = [
        manifest(VM, meta={"labels": {**labels, "virtscale.io/index": str(index)}}) for index in range(batch)
    ]
    return [index for index, vm in enumerate(vms) if faults.striking(fault.kind, vm)]


def test_exactly_as_many_are_struck_and_every_run_the_same() -> None:
    fault = Fault(kind="never-boots", vms=20, stage="boot")
    assert len(struck(fault)) == 20
    assert struck(fault) == struck(fault)
    assert struck(fault, seed=2) != struck(fault)


@pytest.mark.parametrize(("stage", "batch", "count"), [("deploy", 10, 3), ("deploy", 20, 0), ("boot", 10, 0)])
def test_a_fault_keeps_to_its_stage_and_batch(stage: str, batch: int, count: int) -> None:
    fault = Fault(kind="clone-fails", vms=3, stage="deploy", batch=10)
    assert len(struck(fault, stage=stage, batch=batch)) == count


def test_more_faults_than_vms_strike_them_all() -> None:
    assert struck(Fault(kind="never-boots", vms=50, stage="boot"), batch=4) == [0, 1, 2, 3]


def test_nothing_of_other_people_is_struck() -> None:
    faults = Faults(FaultPlan(fault=(Fault(kind="never-boots", vms=9, stage="boot"),)), Draws(1))
    assert not faults.strikes("never-boots", manifest(VM))
    assert not Faults(FaultPlan(), Draws(1)).strikes("never-boots", manifest(VM))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[fault]]\nkind = 'explodes'\nvms = 1\nstage = 'boot'", "fault 1: kind is"),
        ("[[fault]]\nkind = 'never-boots'\nvms = 0\nstage = 'boot'", "fault 1: vms is 0"),
        ("[[fault]]\nkind = 'never-boots'\nvms = 1\nstage = 'boot'\nhow = 1", "fault 1: how is not a key"),
        ("[[fault]\n", "line 1"),
    ],
)
def test_a_wrong_plan_is_one_line_that_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(text)
    with pytest.raises(ProfileError) as refused:
        load_faults(str(path))
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_plan_is_no_fault_and_an_absent_file_is_said(tmp_path: Path) -> None:
    nothing: Any = load_faults("")
    assert nothing.fault == ()
    with pytest.raises(ProfileError, match="cannot be read"):
        load_faults(str(tmp_path / "absent.toml"))
