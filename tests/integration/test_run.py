"""`virtscale run` from end to end on the virtual cluster, without Prefect."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from flows.__main__ import exit_code_of
from infra.cluster.kinds import DATA_VOLUME, PVC, SNAPSHOT, VM
from infra.cluster.port import Scope, list_all
from infra.results.lock import only_process
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from infra.world import WorldSpec, open_world

SMOKE = ("run", "--no-prefect", "--profile", "smoke")
MEASURED = "preflight,golden-image,deploy,boot"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def virtscale(*arguments: str) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = exit_code_of(arguments)
    return Answer(code, out.getvalue(), err.getvalue())


def objects(store: Path, run_id: str) -> int:
    """How many objects there are on the virtual cluster of a run."""
    with open_world(WorldSpec(run_id, str(store))) as world:
        kinds = (VM, DATA_VOLUME, PVC, SNAPSHOT)
        return sum(len(world.run(list_all(world.cluster, Scope(kind))).items) for kind in kinds)


def parts(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*.parquet"))}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A store with the finished smoke run `one`, and what the command said."""
    store = tmp_path_factory.mktemp("store")
    return store, virtscale(*SMOKE, "--store", str(store), "--run-id", "one")


def test_a_run_says_its_id_first_and_every_batch_once(finished: tuple[Path, Answer]) -> None:
    _, answer = finished
    lines = answer.err.splitlines()
    assert answer.code == 0
    assert lines[0] == "run one"
    batches = [
        match.groups() for line in lines if (match := re.match(r"(deploy|boot) +(\d+)  ok (\d+)", line))
    ]
    assert batches == [(stage, size, size) for stage in ("deploy", "boot") for size in ("1", "2", "4")]


def test_the_last_lines_are_verdict_report_and_what_is_left(finished: tuple[Path, Answer]) -> None:
    store, answer = finished
    assert answer.out.splitlines()[-3:] == [
        "verdict valid",
        f"report  {store / 'reports/one/report.html'}",
        "left    nothing",
    ]
    assert (store / "reports/one/report.html").stat().st_size > 100_000
    assert objects(store, "one") == 0


def test_the_manifest_tells_real_time_cost_and_what_can_be_compared(finished: tuple[Path, Answer]) -> None:
    manifest = read_manifest(open_store(str(finished[0])), "one")
    assert manifest is not None
    assert (manifest["verdict"], manifest["seed"], manifest["world"]) == ("valid", 1, "virtual")
    assert manifest["started_at"] < manifest["finished_at"]
    assert manifest["sessions"][0]["cpu_s"] > 0
    assert manifest["comparability"]["golden_sources"] == 1


def test_a_finished_run_prints_its_summary_again_and_measures_nothing(finished: tuple[Path, Answer]) -> None:
    store, first = finished
    before = parts(store)
    again = virtscale(*SMOKE, "--store", str(store), "--run-id", "one")
    assert (again.code, again.out) == (first.code, first.out)
    assert parts(store) == before


def test_json_is_one_object_with_the_promised_keys(finished: tuple[Path, Answer]) -> None:
    store, _ = finished
    answer = virtscale(*SMOKE, "--store", str(store), "--run-id", "one", "--json")
    found = json.loads(answer.out)
    assert set(found) == {"run_id", "verdict", "reasons", "report", "elapsed_s", "peak_rss_mib"}
    assert (found["run_id"], found["verdict"], found["reasons"]) == ("one", "valid", [])
    assert found["elapsed_s"] > 0
    assert found["peak_rss_mib"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set", "boot.batches=1,2"), "started with another profile (boot.batches"),
        (("--seed", "2"), "started with another --seed (1 then, 2 now)"),
        (("--cluster", "virtual:fast"), "started with another --cluster"),
    ],
)
def test_a_run_id_belongs_to_what_it_was_started_with(
    finished: tuple[Path, Answer], options: tuple[str, ...], said: str
) -> None:
    answer = virtscale(*SMOKE, "--store", str(finished[0]), "--run-id", "one", *options)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


def test_a_run_whose_manifest_is_gone_does_not_go_on(finished: tuple[Path, Answer], tmp_path: Path) -> None:
    store = shutil.copytree(finished[0], tmp_path / "store")
    (store / "_manifests" / "one.json").unlink()
    answer = virtscale(*SMOKE, "--store", str(store), "--run-id", "one", "--cluster", "virtual:fast")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "run one has results but no manifest to say what they are of" in answer.err


def test_a_refused_run_may_be_corrected_under_its_id(tmp_path: Path) -> None:
    run = (*SMOKE, "--store", str(tmp_path), "--run-id", "again", "--cluster", "virtual:fast", "--stages")
    refused = virtscale(*run, "preflight,deploy", "--set", "deploy.batches=1,6000")
    assert (refused.code, refused.err.splitlines()[-1][:7]) == (2, "error: ")
    assert virtscale(*run, "preflight,deploy").code == 0
    assert virtscale(*run, "preflight,deploy", "--set", "deploy.batches=1,3").code == 2


def test_a_run_at_work_is_neither_cleaned_nor_started_twice(tmp_path: Path) -> None:
    run = (*SMOKE, "--store", str(tmp_path), "--run-id", "busy", "--stages", "preflight")
    assert virtscale(*run).code == 0
    with only_process(open_store(str(tmp_path)), "busy"):
        again = virtscale(*SMOKE, "--store", str(tmp_path), "--run-id", "busy")
        cleaned = virtscale("clean", "busy", "--store", str(tmp_path))
    for answer in (again, cleaned):
        assert "another process is at work on it" in answer.err
        assert answer.code != 0


def test_runs_lists_it(finished: tuple[Path, Answer]) -> None:
    listed = json.loads(virtscale("runs", "--store", str(finished[0]), "--json").out)
    assert [(each["run"], each["verdict"], each["state"]) for each in listed] == [
        ("one", "valid", "finished")
    ]


def test_report_writes_it_again(finished: tuple[Path, Answer]) -> None:
    report = finished[0] / "reports/one/report.html"
    report.unlink()
    assert virtscale("report", "one", "--store", str(finished[0])).out == f"{report}\n"
    assert report.is_file()


def test_kept_objects_are_said_and_cleaned_later(tmp_path: Path) -> None:
    options = ("--store", str(tmp_path), "--run-id", "kept", "--stages", f"{MEASURED},clean", "--keep")
    answer = virtscale(*SMOKE, *options)
    assert answer.out.splitlines()[-1].endswith(f"virtscale clean kept --store {tmp_path}")
    assert objects(tmp_path, "kept") > 0
    assert virtscale("clean", "kept", "--store", str(tmp_path)).code == 0
    assert objects(tmp_path, "kept") == 0


def test_a_vm_that_never_boots_makes_the_run_invalid_and_not_a_crash(tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text('[[fault]]\nkind = "never-boots"\nvms = 1\nstage = "boot"\n')
    options = ("--store", str(tmp_path / "store"), "--stages", MEASURED, "--faults", str(faults), "--json")
    answer = virtscale(*SMOKE, "--set", "boot.batches=4", "--set", "boot.limit_s=600", *options)
    found = json.loads(answer.out)
    assert (answer.code, found["verdict"]) == (3, "invalid")
    assert found["reasons"] == ["boot 4: vm_not_ok: 1 of 4 timeout"]
    assert "Traceback" not in answer.err


def test_what_was_measured_does_not_depend_on_the_order_of_hashes(tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        store = tmp_path / seed
        command = [sys.executable, "-m", "flows", *SMOKE, "--store", str(store), "--run-id", "same"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, "--stages", MEASURED], env=environment, capture_output=True, check=True)
        found.append(parts(store))
    assert found[0] == found[1]
    assert found[0]


def test_an_interrupted_run_leaves_nothing_and_goes_on(tmp_path: Path) -> None:
    options = [
        "--no-prefect",
        "--profile",
        "small",
        "--stages",
        f"{MEASURED},clean",
        "--store",
        str(tmp_path),
    ]
    arguments = ["run", *options, "--run-id", "torn"]
    # A test runner may have been started with SIGINT ignored, which a child would inherit.
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from flows.__main__ import exit_code_of; sys.exit(exit_code_of(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if re.match(r"deploy +10 ", line):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert "interrupted; go on with: virtscale" in said[-1]
    assert not any("Traceback" in line for line in said)
    assert objects(tmp_path, "torn") == 0

    answer = virtscale(*arguments)
    assert answer.code == 0
    assert re.search(r"deploy +10 .*\(done before\)", answer.err)
    assert answer.out.splitlines()[-1] == "left    nothing"
