"""Workers that a run cannot have are refused before anything is changed."""

from pathlib import Path

import pytest

from flows import workers
from flows.__main__ import exit_code_of
from flows.forms import DeployForm
from infra.errors import ProfileError
from tasks.run import RunRequest

LIVE = ("--cluster", "our-lab", "--profile", "smoke")
REFUSED = {
    ("--workers", "dask", "--cluster", "virtual:fast"): "a virtual cluster has one process and one time",
    (*LIVE, "--workers", "dask", "--no-prefect"): "Prefect hands out the shards; leave out --no-prefect",
    (*LIVE, "--dask-address", "tcp://127.0.0.1:1"): "it is used with --workers dask alone",
    (*LIVE, "--workers", "dask", "--shards", "65"): "65 is not in the range",
    (*LIVE, "--workers", "ray"): "'ray' is not 'dask'",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_is_one_line(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(("run", "--store", str(tmp_path / "store"), *options)) == 2
    assert REFUSED[options] in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_an_extra_that_is_not_installed_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "find_spec", lambda _: None)
    with pytest.raises(ProfileError, match="Dask is not installed; make setup-dask"):
        workers.check_workers(RunRequest(cluster="our-lab", shards=4))


def test_a_run_without_shards_needs_no_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "find_spec", lambda _: None)
    with workers.workers_of(RunRequest(cluster="our-lab")):
        assert workers.workers.get() is None


def test_a_form_asks_for_shards() -> None:
    asked = DeployForm(profile="smoke", cluster="our-lab", shards=3, dask="tcp://there:8786").request()
    assert (asked.shards, asked.dask) == (3, "tcp://there:8786")
