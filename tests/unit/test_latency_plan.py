"""What the latency stage asks of the guests, and the runner that does it there."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import infra.guests
from flows.steps import steps_of
from infra.errors import ProfileError
from tasks.latency_plan import cpus_of, plan_of, tool_named
from tasks.profile import load_profile

RUNNER, COPIER = (Path(infra.guests.__path__[0]) / name for name in ("segments.sh", "copies.sh"))
FAKE = '#!/bin/sh\necho run >>{count}\nprintf \'result of %s\' "$1" >"$1.json"\n'


def segments(folder: Path, tool: Path, first: int, last: int) -> list[dict[str, object]]:
    arguments = [str(folder), str(first), str(last), ".json", str(tool), "@"]
    subprocess.run(["sh", str(RUNNER), *arguments], check=True, timeout=30)
    return [json.loads(line) for line in (folder / "manifest").read_text().splitlines()]


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """Writes a result, and a line for each time that it is started."""
    path = tmp_path / "tool"
    path.write_text(FAKE.format(count=tmp_path / "count"))
    path.chmod(0o755)
    return path


needs_linux = pytest.mark.skipif(
    not Path("/proc/uptime").exists() or not shutil.which("sha256sum"),
    reason="the runner is for Linux guests",
)


@needs_linux
def test_the_runner_notes_each_segment_with_the_sum_of_its_result(tmp_path: Path, tool: Path) -> None:
    noted = segments(tmp_path / "d", tool, 1, 3)
    assert [(line["segment"], line["exit"]) for line in noted] == [(1, 0), (2, 0), (3, 0)]
    for number, line in enumerate(noted, 1):
        body = (tmp_path / "d" / f"seg-{number:05d}.json").read_bytes()
        assert line["sha256"] == hashlib.sha256(body).hexdigest()
        assert str(line["boot_id"]) == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert float(str(line["begin_s"])) <= float(str(line["end_s"]))


@needs_linux
def test_a_runner_that_starts_again_does_not_measure_again(tmp_path: Path, tool: Path) -> None:
    segments(tmp_path / "d", tool, 1, 2)
    noted = segments(tmp_path / "d", tool, 1, 4)
    assert [line["segment"] for line in noted] == [1, 2, 3, 4]
    assert (tmp_path / "count").read_text().splitlines() == ["run"] * 4


@needs_linux
def test_a_tool_that_fails_is_noted_with_its_exit_code(tmp_path: Path, tool: Path) -> None:
    tool.write_text("#!/bin/sh\nexit 3\n")
    assert [line["exit"] for line in segments(tmp_path / "d", tool, 1, 1)] == [3]


SYSTEMCTL = """#!/bin/sh
if [ "$1" = show ]; then
    echo ActiveEnterTimestampMonotonic=$(awk '{{printf "%d", $1 * 1e6}}' /proc/uptime)
elif [ -e {folder}/dead ]; then
    exit 1
else
    echo run >>{folder}/count
    wc -l <{folder}/count >{folder}/hist.json
fi
"""


def copies(folder: Path, last: int) -> list[dict[str, Any]]:
    """What copies.sh notes of a unit that writes on USR2 how often it has written."""
    systemctl = folder / "systemctl"
    systemctl.write_text(SYSTEMCTL.format(folder=folder))
    systemctl.chmod(0o755)
    arguments = [str(folder / "d"), str(last), "0.6", "virtscale-l2reflect", str(folder / "hist.json")]
    path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["sh", str(COPIER), *arguments], check=True, timeout=30, env=path)
    return [json.loads(line) for line in (folder / "d" / "manifest").read_text().splitlines()]


@needs_linux
def test_copies_are_taken_at_the_ends_of_segments_and_noted_with_their_sums(tmp_path: Path) -> None:
    noted = copies(tmp_path, 2)
    assert [(line["segment"], line["exit"]) for line in noted] == [(1, 0), (2, 0)]
    bodies = [(tmp_path / "d" / f"seg-0000{number}.json").read_bytes() for number in (1, 2)]
    assert bodies == [b"1\n", b"2\n"]
    assert [line["sha256"] for line in noted] == [hashlib.sha256(body).hexdigest() for body in bodies]
    assert noted[1]["begin_s"] == noted[0]["end_s"]
    begin_s = noted[0]["begin_s"]
    assert all(line["end_s"] - begin_s > 0.6 * line["segment"] - 0.05 for line in noted)


@needs_linux
def test_a_process_that_is_gone_is_noted_with_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "dead").touch()
    assert [line["exit"] for line in copies(tmp_path, 1)] == [1]


def test_the_study_measures_three_and_five_days() -> None:
    latency = load_profile("study").latency
    assert [(tool, latency.length_s(tool) / 86_400) for tool in latency.tools] == [
        ("jitterdebugger", 3.0),
        ("l2reflect", 5.0),
    ]


def test_a_tool_is_a_step() -> None:
    steps = steps_of(load_profile("small", ["stages=latency"]))
    assert [step.cell for step in steps] == ["jitterdebugger", "cyclictest", "oslat", "l2reflect"]
    assert {step.vms for step in steps} == {0}


def test_durations_are_seconds_with_their_unit() -> None:
    for tool in ("jitterdebugger", "cyclictest", "oslat"):
        assert " -D 21600s " in plan_of(load_profile("study").latency, tool_named(tool)).start(1) + " "


def test_l2reflect_is_one_process_that_never_gives_up_by_itself() -> None:
    command = plan_of(load_profile("study").latency, "l2reflect").start(1)
    assert "--property=KillSignal=SIGINT" in command
    assert command.endswith("-H 1 -B 2000 -F /var/lib/virtscale/latency/l2reflect/hist.json -b 0")


@pytest.mark.parametrize(("text", "cpus"), [("2-3", (2, 3)), ("3,1-2", (1, 2, 3)), ("5", (5,))])
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert cpus_of(text) == cpus


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            "latency.segment_s=1000",
            "jitterdebugger measures 259200 s, which is no multiple of segment_s 1000",
        ),
        ("latency.cpus=0-3", "vCPU 0 is the guest's own"),
        ("latency.cpus=2-4", "3 is the last"),
        ("latency.cpus=3-2", "a range runs backwards"),
        ("latency.tools=oslat,oslat", "a tool is named twice"),
        ("latency.tools=hwlat", "hwlat"),
    ],
)
def test_a_wrong_latency_section_is_one_clear_line(changed: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        load_profile("study", [changed])


def test_a_tool_that_there_is_not_is_named() -> None:
    with pytest.raises(ProfileError, match=r"latency tool hwlat: there is none; tools are jitterdebugger"):
        tool_named("hwlat")
