"""Stages side by side: real processes."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flows import lanes
from flows.side_by_side import SideBySide, StepRunner
from flows.steps import Step
from flows.study import conduct
from infra.errors import StageError
from infra.results.folder import open_folder
from tasks.profile import load_profile
from tasks.run import RunRequest

SIZES = (
    "deploy.batches=[3,6]",
    "boot.batches=[3,6]",
    "io.block_kib=[4]",
    "io.patterns=[read]",
    "latency.tools=[l2reflect]",
    "stages=preflight,golden-image,deploy,boot,report,clean",
)


def parquet(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def conducted(store: Path, *stages: str) -> dict[str, bytes]:
    sets = [*SIZES, f"stages={','.join(stages)}"] if stages else SIZES
    profile = load_profile("smoke", sets)
    conduct(RunRequest(run_id="same", profile=profile, store=str(store), cluster="virtual:fast", seed=3))
    return parquet(store)


def test_two_processes_store_the_bytes_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[list[str]] = []
    walk_beside = SideBySide.walk

    def walk(self: SideBySide, leg: lanes.Leg, take: Any) -> None:
        walked.append([lane[0].stage for lane in leg])
        walk_beside(self, leg, take)

    monkeypatch.setattr(SideBySide, "walk", walk)
    monkeypatch.setattr(lanes, "SMALL_VMS", 0)
    monkeypatch.setenv("VIRTSCALE_PROCESSES", "1")
    stages = ("preflight", "golden-image", "deploy", "boot", "io", "latency", "report", "clean")
    one = conducted(tmp_path / "one", *stages)
    assert walked == []
    monkeypatch.setenv("VIRTSCALE_PROCESSES", "2")
    two = conducted(tmp_path / "two", *stages)
    assert walked == [["deploy", "boot", "io", "latency"], ["report", "clean"]]
    tables = {name.partition("/")[0] for name in one}
    assert {"vm_boots", "io_histograms", "latency_histograms"} <= tables
    assert one == two


def test_a_stage_measured_alone_gives_the_rows_of_the_study(tmp_path: Path) -> None:
    whole = conducted(tmp_path / "whole")
    alone = conducted(tmp_path / "alone", "preflight", "golden-image", "boot")
    boots = [name for name in alone if "/boot-" in name]
    assert boots
    assert all(alone[name] == whole[name] for name in boots)


def takes(folder: str, _: RunRequest, step: Step) -> dict[str, Any]:
    """A step as a test needs it: deploys fail, boots take long, and say how they end."""
    if step.stage == "deploy":
        raise StageError("deploy 1: no")
    began = Path(folder) / f"{step.stage}.began"
    began.write_text(str(os.getpid()))
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        began.with_suffix(".interrupted").touch()
        raise
    return {}


def walk(beside: SideBySide, folder: Path) -> None:
    def take(step: Step, where: StepRunner) -> None:
        if step.stage == "deploy":
            waits_for(folder / "boot.began")
        where(RunRequest(run_id="r"), step)

    beside.walk([[Step("deploy", "1")], [Step("boot", "1")]], take)


def waits_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()


def test_the_first_error_is_raised_and_the_other_lane_interrupted(tmp_path: Path) -> None:
    beside = SideBySide(2, partial(takes, str(tmp_path)), open_folder(tmp_path / "store"))
    try:
        with pytest.raises(StageError, match="deploy 1: no"):
            walk(beside, tmp_path)
    finally:
        beside.close()
    assert beside.at == Step("deploy", "1")
    assert (tmp_path / "boot.interrupted").exists()


PARENT = """
import sys
from functools import partial
from pathlib import Path
from flows.side_by_side import SideBySide
from flows.steps import Step
from infra.results.folder import open_folder
from tasks.run import RunRequest
from tests.integration.test_side_by_side import takes
if __name__ == "__main__":
    beside = SideBySide(1, partial(takes, sys.argv[1]), open_folder(Path(sys.argv[1])))
    beside.walk([[Step("boot", "1")]], lambda step, where: where(RunRequest(run_id="r"), step))
"""


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_run_does_not_go_on_in_its_processes(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    parent = subprocess.Popen([sys.executable, script, tmp_path], cwd=root, env=environment)
    try:
        waits_for(tmp_path / "boot.began")
    finally:
        parent.kill()
        parent.wait()
    child = int((tmp_path / "boot.began").read_text())
    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)
    assert not (tmp_path / "boot.interrupted").exists()
