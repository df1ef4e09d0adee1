"""Which steps may be taken side by side."""

from flows.lanes import by_work, legs_of, processes_for
from flows.steps import steps_of
from tasks.profile import load_profile

STAGES = "stages=preflight,golden-image,deploy,boot,report,clean"


def stages_of_legs(*sets: str) -> list[list[str]]:
    return [[lane[0].stage for lane in leg] for leg in legs_of(steps_of(load_profile("study", sets)))]


def test_what_measures_and_what_closes_are_legs_and_each_preparation_is_one() -> None:
    assert stages_of_legs(STAGES) == [
        ["preflight"],
        ["golden-image"],
        ["deploy", "boot"],
        ["report", "clean"],
    ]


def test_a_lane_has_its_batches_in_order() -> None:
    legs = legs_of(steps_of(load_profile("smoke", [STAGES])))
    assert [step.cell for step in legs[2][1]] == ["1", "2", "4"]


def test_the_longest_lane_goes_first() -> None:
    legs = legs_of(steps_of(load_profile("study", [STAGES])))
    assert [lane[0].stage for lane in by_work(legs[2])] == ["boot", "deploy"]


def test_small_runs_and_single_stages_stay_in_one_process() -> None:
    small, study = (legs_of(steps_of(load_profile(name, [STAGES]))) for name in ("small", "study"))
    boots = legs_of(steps_of(load_profile("study", ["stages=preflight,golden-image,boot,report,clean"])))
    assert [processes_for(legs, 8) for legs in (small, boots, study)] == [0, 0, 2]
    assert processes_for(study, 1) == 0
