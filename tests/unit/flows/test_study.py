"""What happens to a run's objects when a step ends early."""

from pathlib import Path
from typing import Any

import pytest

from flows import study
from infra.errors import StoreError
from infra.results.commits import read_commits
from infra.results.folder import FolderStore, open_folder
from infra.results.spool import create_spool
from tests.unit.flows.conftest import Call

RUN = ("run", "--no-prefect", "--profile", "smoke", "--cluster", "virtual:fast", "--run-id", "r")


def stages(store: Path) -> list[str]:
    return [commit.cell.stage for commit in read_commits(open_folder(store), "r")]


def test_who_finds_another_process_at_work_leaves_its_objects_alone(virtscale: Call, tmp_path: Path) -> None:
    store = tmp_path / "store"
    other = create_spool(store / "_spool" / "r" / "deploy-1-1-1.spool")
    answer = virtscale(*RUN, "--store", str(store))
    other.close()
    assert answer.code == 1
    assert "error: deploy 1: " in answer.err
    assert "another process is at work" in answer.err
    assert stages(store) == ["preflight", "tuning", "golden-image"]


def test_a_store_that_is_full_ends_the_run_and_says_how_to_remove_its_objects(
    virtscale: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_new = FolderStore.put_new

    def full(store: FolderStore, key: str, body: bytes) -> bool:
        if "/deploy-" in key or "/clean-" in key:
            raise StoreError(f"store {store.root}: cannot be written (no space left on device)")
        return put_new(store, key, body)

    monkeypatch.setattr(FolderStore, "put_new", full)
    answer = virtscale(*RUN, "--store", str(tmp_path / "store"))
    assert answer.code == 1
    assert "error: deploy 1: " in answer.err
    assert "no space left on device" in answer.err
    assert f"objects of the run may be left: virtscale clean r --store {tmp_path / 'store'}" in answer.err


def test_a_report_of_what_is_no_run_id_is_refused(virtscale: Call, tmp_path: Path) -> None:
    open_folder(tmp_path / "store")
    answer = virtscale("report", "../x", "--store", str(tmp_path / "store"))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "run id '../x'" in answer.err


def test_a_run_whose_state_is_lost_is_told_one_thing_only(virtscale: Call, tmp_path: Path) -> None:
    command = (*RUN, "--store", str(tmp_path / "store"))
    assert virtscale(*command, "--stages", "preflight,golden-image").code == 0
    for state in (tmp_path / "store" / "_states" / "r").iterdir():
        state.write_bytes(b"damaged")
    answer = virtscale(*command, "--stages", "preflight,golden-image,deploy")
    assert answer.code == 2
    assert answer.err.splitlines()[-1].endswith("begin again with another --run-id")
    assert "--run-id r" not in answer.err
    assert "virtscale clean" not in answer.err


def test_an_interrupt_between_two_steps_cleans_up_as_one_within_a_step(
    virtscale: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = study.walk

    def walked(*leg: Any) -> None:
        walk(*leg)
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "walk", walked)
    answer = virtscale(*RUN, "--store", str(tmp_path / "store"))
    assert answer.code == 130
    assert "may be left" not in answer.err
    assert stages(tmp_path / "store")[-1] == "clean"
