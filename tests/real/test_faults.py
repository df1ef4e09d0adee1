"""A slice of `make prove-api`: a small storm in which the API server is killed."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from infra.testbed.state import State
from tests.real.faults import CALM, FAULTS, problems
from tests.real.lab import Lab, lab
from tests.real.storm import Spec

pytestmark = [pytest.mark.api, pytest.mark.timeout(600)]
VMS = 8
PACED = {**CALM, "boot": {"rate_per_s": 1.0}}
"""Slow enough that a fault finds a storm of so few VMs in its middle."""
SLICE = ("api-killed",)


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
