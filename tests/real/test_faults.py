"""A slice of `make prove-api`: small storms in which the API server, a watch or a user does something."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from infra.testbed import apply
from infra.testbed.state import State
from tests.real.faults import CALM, FAULTS, problems
from tests.real.lab import Lab, lab
from tests.real.storm import Spec

pytestmark = [pytest.mark.api, pytest.mark.timeout(300)]
VMS = 12
PACED = {**CALM, "boot": {"rate_per_s": 1.5}}
"""Slow enough that a fault finds a storm of so few VMs in its middle."""
SLICE = ("api-killed", "cut", "watches-end")


@pytest.fixture(scope="module")
def at_work(testbed: State, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(testbed, tmp_path_factory.mktemp("lab")) as here:
        yield here


def spec(at_work: Lab, first: int) -> Spec:
    """Storms of one run, which share their VMs."""
    return Spec(store=str(at_work.folder / "store"), run_id="slice", size=VMS, first=first, changes=PACED)


@pytest.mark.parametrize("name", SLICE)
def test_a_fault_is_named_and_every_moment_lies_within_its_bound(at_work: Lab, name: str) -> None:
    fault = replace(FAULTS[name], may=FAULTS[name].may | {"rate_missed"})
    found = fault.storm(at_work, spec(at_work, SLICE.index(name) + 1))
    assert problems(fault, found, VMS) == [], (found.batch, found.vms)


def test_vms_that_a_user_deletes_in_a_storm_are_lost_with_the_reason(at_work: Lab) -> None:
    asked_for = spec(at_work, 10)
    place = f"/apis/kubevirt.io/v1/namespaces/{asked_for.namespace}/virtualmachines"
    victims = [f"{asked_for.run_id}-b-{i:04d}" for i in (1, 5, 9)]

    def delete() -> None:
        for victim in victims:
            apply.request(at_work.testbed, "DELETE", f"{place}/{victim}")

    found = at_work.storm(asked_for, delete)
    states = {row["vm"]: (row["state"], row["detail"]) for row in found.vms}
    assert len(found.vms) == len(states) == VMS
    assert {states[vm] for vm in states if vm not in victims} == {("ok", None)}
    lost = {states[vm] for vm in victims if states[vm][0] != "ok"}
    assert lost == {("lost", "the VirtualMachine was deleted by somebody else")}
    assert "vm_not_ok" in found.codes
