"""The order of a run is the order of the study."""

from flows.steps import Step, steps_of
from tasks.profile import STAGES, load_profile, profile_hash, with_stages


def labels(*sets: str) -> list[str]:
    return [step.label for step in steps_of(load_profile("smoke", sets), "r1")]


def test_the_study_reads_as_the_procedure() -> None:
    stages = "preflight,golden-image,deploy,boot,io,report,clean"
    assert labels(f"stages={stages}") == [
        "preflight",
        "golden image",
        "deploy 1",
        "deploy 2",
        "deploy 4",
        "boot 1",
        "boot 2",
        "boot 4",
        "io 1 per node",
        "io 1 per node 4 KiB read",
        "io 1 per node 4 KiB write",
        "io 1 per node 64 KiB write",
        "io 1 per node 64 KiB read",
        "io end",
        "report",
        "clean",
    ]


def test_order_down_begins_with_the_largest_batch() -> None:
    assert labels("deploy.order=down", "stages=deploy") == ["deploy 4", "deploy 2", "deploy 1"]


def test_repeats_go_through_all_sizes_before_the_next() -> None:
    assert labels("boot.repeats=2", "stages=boot") == [
        "boot 1 (1 of 2)",
        "boot 2 (1 of 2)",
        "boot 4 (1 of 2)",
        "boot 1 (2 of 2)",
        "boot 2 (2 of 2)",
        "boot 4 (2 of 2)",
    ]


def test_no_two_steps_share_a_cell() -> None:
    steps = steps_of(load_profile("study", ["boot.repeats=3", "deploy.repeats=2", "io.repeats=2"]))
    assert len({(step.stage, step.cell, step.repeat) for step in steps}) == len(steps)


def test_the_study_is_at_most_80_steps_each_of_which_is_a_task_run() -> None:
    assert len(steps_of(load_profile("study"))) == 47


def test_stages_are_taken_in_the_order_of_a_study_whatever_was_typed() -> None:
    profile = with_stages(load_profile("smoke"), ["report", "boot", "boot"])
    assert profile.stages == ("boot", "report")


def test_the_study_has_the_sizes_of_the_study() -> None:
    study = load_profile("study")
    sizes = (100, 200, 400, 800, 1600, 3200, 6000)
    assert (study.deploy.batches, study.boot.batches, study.stages) == (sizes, sizes, STAGES)


def test_stages_are_no_part_of_the_hash_and_sizes_are() -> None:
    smoke = load_profile("smoke")
    assert profile_hash(with_stages(smoke, ["report"])) == profile_hash(smoke)
    assert profile_hash(load_profile("smoke", ["boot.batches=1,2"])) != profile_hash(smoke)


def test_set_reads_lists_numbers_text_and_nothing() -> None:
    profile = load_profile(
        "smoke", ["boot.batches=3", "deploy.rate_per_s=2", "vm.storage_class=7", "boot.rate_per_s=none"]
    )
    assert profile.boot.batches == (3,)
    assert (profile.deploy.rate_per_s, profile.boot.rate_per_s) == (2.0, None)
    assert profile.vm.storage_class == "7"


def test_a_whole_stage_measures_no_vm() -> None:
    assert (Step("report").vms, Step("deploy", "400").vms) == (0, 400)
