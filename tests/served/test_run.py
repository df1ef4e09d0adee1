"""`virtscale run` against a served cluster, from end to end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import polars as pl
import pytest

from flows.__main__ import exit_code_of
from infra.cluster.kinds import VM
from infra.cluster.port import Object, Scope
from infra.cluster.real import KubernetesCluster
from infra.errors import Expired
from infra.served.access import CONTEXT, new_access, write_kubeconfig
from tests.real.controlling import unhurried
from tests.served.conftest import Server

STAGES = "preflight,golden-image,deploy,boot,report,clean"


@pytest.mark.api
@pytest.mark.timeout(600)
def test_profile_smoke_runs_and_its_tables_say_served(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    place = ("--store", str(tmp_path / "store"), "--run-id", "one", "--json")
    how = ("--stages", STAGES, "--no-prefect", "--cluster", CONTEXT, *unhurried())
    code = exit_code_of(("run", "--profile", "smoke", *how, *place))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert json.loads(printed.out)["verdict"] == "valid"
    boots = pl.concat(pl.read_parquet(f) for f in (tmp_path / "store" / "vm_boots").rglob("*.parquet"))
    assert set(boots["world"]) == {"served"}
    assert set(boots["state"]) == {"ok"}
    assert boots["running_s"].null_count() == 0
    # guests are in the server's process: storms end at Running
    assert boots["ssh_ready_s"].null_count() == boots.height


@pytest.mark.api
@pytest.mark.timeout(120)
@pytest.mark.parametrize("before", ["signal.default_int_handler", "signal.SIG_IGN"])
def test_a_run_that_is_told_to_end_cleans_up_says_how_to_go_on_and_exits_143(
    server: Server, tmp_path: Path, before: str
) -> None:
    options = ("--profile", "smoke", "--stages", STAGES, "--no-prefect", "--cluster", CONTEXT)
    place = ("--store", str(tmp_path / "store"), "--run-id", "told", *unhurried())
    # A shell starts background jobs with SIGINT ignored.
    script = (
        f"import signal, sys; signal.signal(signal.SIGINT, {before}); "
        "from flows.__main__ import exit_code_of; sys.exit(exit_code_of(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "run", *options, *place]
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith(("golden image", "clean")):
                # the second one comes too late to change anything
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 143, said
    assert "Namespace 2" in said[-2]
    assert said[-1].startswith("interrupted; go on with: virtscale")
    left: list[Object] = []

    async def look(cluster: KubernetesCluster) -> None:
        left.extend((await cluster.list(Scope(VM))).items)

    server.use(look)
    assert left == []


NEVER_ACCEPTED: dict[str, dict[str, str]] = {
    "the token": {"token": "SECRET"},
    "the password": {"username": "who", "password": "SECRET"},
}


@pytest.mark.parametrize("proof", NEVER_ACCEPTED)
@pytest.mark.parametrize("verb", ["doctor", "run"])
def test_a_login_that_was_never_accepted_is_refused_at_once(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    proof: str,
) -> None:
    monkeypatch.setattr("infra.cluster.real.adapter._accepted", set())
    document = json.loads(server.kubeconfig.read_text())
    document["users"][0]["user"] = NEVER_ACCEPTED[proof]
    wrong = tmp_path / "wrong"
    wrong.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(wrong))
    began_s = time.monotonic()
    more = () if verb == "doctor" else ("--profile", "smoke", "--no-prefect")
    assert exit_code_of((verb, "--cluster", CONTEXT, "--store", str(tmp_path / "store"), *more)) == 2
    assert time.monotonic() - began_s < 20
    said = "".join(capsys.readouterr())
    assert f"context {CONTEXT}: {server.address} does not accept {proof} of user 'virtscale-admin'" in said
    assert "log in again, or correct it in the kubeconfig" in said
    assert "SECRET" not in said


def test_a_login_that_was_accepted_before_is_waited_for(
    own: Callable[..., AbstractContextManager[Server]], tmp_path: Path
) -> None:
    with own() as server:

        async def nothing(_: KubernetesCluster) -> None:
            """That it connects is enough."""

        server.use(nothing)
        document = json.loads(server.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": "expired"}
        server.kubeconfig.write_text(json.dumps(document))

        async def refused(cluster: KubernetesCluster) -> None:
            with pytest.raises(Expired):
                await cluster.list(Scope(VM))

        server.use(refused)


def test_the_command_says_where_it_serves_and_ends_when_asked(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "flows", "cluster", "serve", "--kubeconfig", str(file), "--nodes", "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stderr is not None
        assert serving.stdout.readline() == f"export KUBECONFIG={file}\n"
        said = serving.stderr.readline()
        assert said.startswith("serving https://127.0.0.1:")
        assert f"context {CONTEXT}" in said
        assert file.stat().st_mode & 0o077 == 0
        serving.terminate()
        assert serving.wait(60) == 0
        assert serving.stderr.read() == "stopped\n"


def test_wrong_options_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("contexts: [{name: production}]\n")
    wrong = {
        ("--nodes", "0"): "0 is not in the range",
        ("--faults", str(tmp_path / "none.toml")): "cannot be read",
        ("--preset", "nope"): "no such preset or file; presets are",
        ("--preset", str(theirs)): "ends with .toml; rename it",
        ("--kubeconfig", str(theirs)): "is left alone; name another file",
    }
    for options, said in wrong.items():
        assert exit_code_of(("cluster", "serve", *options)) == 2
        assert said in capsys.readouterr().err


def test_a_kubeconfig_that_is_a_symlink_is_written_through(state: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for _ in range(2):
        write_kubeconfig(link, new_access(), "https://127.0.0.1:1")
        assert link.is_symlink()
        assert json.loads(target.read_text())["current-context"] == CONTEXT
        assert target.stat().st_mode & 0o077 == 0
