"""Each mechanism of the virtual cluster makes its shape: with its switch off the shape is gone.

Reduced sizes; `make fidelity` does the same at full ones.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pytest
import tomli_w

from flows.study import conduct
from infra.cluster.virtual.description import Description, described
from tasks.profile import Profile
from tasks.run import RunRequest
from tests.benchmarks.fidelity_labs import launches, restores_per_min
from tests.benchmarks.fidelity_study import Study, bracket_of, changed_description, read_study

SMALL = {"nodes.workers": 6}
QUICK_GUESTS = {
    "guest.boot_work_s": 0.5,
    "guest.first_boot_work_s": 0.1,
    "guest.copy_up_mib": 10.0,
    "kubelet.start_s": 0.3,
    "virt.domain_start_s": 0.1,
    "csi.restore_s": 0.02,
}
SMALL_ATTACHER = {
    "attach.workers": 2,
    "attach.attach_s": 1.0,
    "attach.overload_above": 25,
    "attach.overload_below": 5,
    "attach.overload_factor": 2.0,
}

Measure = Callable[..., Study]


@pytest.fixture
def measured(tmp_path: Path) -> Measure:
    """The stages, on preset `study` with changed constants: `deploy` and `boot` are sizes."""

    def measure(changed: dict[str, Any], deploy: tuple[int, ...] = (), boot: tuple[int, ...] = ()) -> Study:
        path = tmp_path / "cluster.toml"
        path.write_text(tomli_w.dumps(changed_description("study", {**SMALL, **changed})))
        stages = ["golden-image", *(["deploy"] if deploy else []), *(["boot"] if boot else [])]
        sizes = {"deploy": {"batches": deploy or (1,)}, "boot": {"batches": boot or (1,)}}
        profile = Profile.model_validate({"name": "test", "stages": stages, **sizes})
        store = str(tmp_path / "store")
        request = RunRequest(
            run_id=f"r{len(changed)}", profile=profile, cluster=f"virtual:{path}", store=store, keep=True
        )
        conduct(request)
        return read_study(store, request.run_id)

    return measure


def changed(preset: str, **constants: Any) -> Description:
    """A preset with other constants; `part__name` stands for part.name."""
    values = {key.replace("__", "."): value for key, value in constants.items()}
    return described(changed_description(preset, values), preset)


def test_the_restore_lock_makes_deploys_take_a_restore_per_vm(measured: Measure) -> None:
    locked = measured({}, deploy=(20, 40))
    free = measured({"csi.restore_lock": False}, deploy=(20, 40))
    for n in (20, 40):
        per_vm_s = (locked.deploy_s(n) or 0) / n
        assert 0.38 < per_vm_s < 0.46
        assert (free.deploy_s(n) or 0) < 0.5 * 0.4 * n


def test_an_overloaded_attacher_bends_the_boot_curve(measured: Measure) -> None:
    constants = {**QUICK_GUESTS, **SMALL_ATTACHER}
    overloaded = measured(constants, boot=(20, 40))
    steady = measured({**constants, "attach.overload": False}, boot=(20, 40))
    assert bracket_of(overloaded) == "(20, 40]"
    assert bracket_of(steady) == "none"
    assert overloaded.boot_s(20) == pytest.approx(steady.boot_s(20), rel=0.1)


def test_client_limits_make_virt_controller_slow() -> None:
    limited = launches(changed("launch-lab"), 1, 60)
    free = launches(changed("launch-lab", limits_on=False), 1, 60)
    assert limited.longest_s > 3 * free.longest_s


def test_virt_controller_makes_eight_calls_for_an_instance() -> None:
    # observed API versions, PodDisruptionBudget and Event, pod and Event, Scheduling, Scheduled, Ready
    assert launches(changed("launch-lab"), 1, 60).calls_per_vmi == 8
    without_budgets = changed("launch-lab", virt__disruption_budgets=False)
    assert launches(without_budgets, 1, 60).calls_per_vmi == 6


def test_one_snapshot_restores_more_slowly_than_four_and_without_lock_it_does_not() -> None:
    lab, unlocked = changed("csi-lab"), changed("csi-lab", csi__restore_lock=False)
    assert restores_per_min(lab, 1, 40, 4) > 2 * restores_per_min(lab, 1, 40, 1)
    assert restores_per_min(unlocked, 1, 40, 1) == pytest.approx(
        restores_per_min(unlocked, 1, 40, 4), rel=0.05
    )


@pytest.mark.parametrize(("images", "balanced"), [(-1, True), (50, False)])
def test_nodes_that_report_50_images_unbalance_the_placement(images: int, balanced: bool) -> None:
    cluster = changed("launch-lab", nodes__status_max_images=images, limits_on=False, requests_per_s=100.0)
    per_node = launches(cluster, 7, 240).per_node
    assert len(per_node) == 12
    assert sum(per_node) == 240
    cv = pstdev(per_node) / mean(per_node)
    assert cv <= 0.1 if balanced else cv >= 0.25
