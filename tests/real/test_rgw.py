"""A real Ceph RGW: the contract, the command line on it, a gateway that dies in a run, and refusals."""

import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows import lanes
from flows.study import conduct
from infra.errors import StoreError
from infra.results.commits import read_commits
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from infra.results.read import scan
from infra.rgw import daemons
from infra.rgw.configuration import Gateway
from tasks.profile import load_profile
from tasks.records import TABLES
from tasks.run import RunRequest
from tests.real.rgw import bucket, fresh_bucket, gateway, running
from tests.store.contract import MakeStore, ObjectStoreContract, ResultsContract

__all__ = ["bucket", "gateway"]
STAGES = "preflight,golden-image,deploy,boot,report,clean"
pytestmark = [pytest.mark.rgw, pytest.mark.timeout(300)]


@pytest.fixture
def make_store(bucket: str) -> MakeStore:
    address = f"s3://{bucket}/{secrets.token_hex(4)}"
    return lambda: open_store(address)


class TestObjects(ObjectStoreContract):
    rounds = 100


class TestResults(ResultsContract):
    rounds = 20


def virtscale(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_line_does_everything_on_it(bucket: str, tmp_path: Path) -> None:
    store, folder = ["--store", f"s3://{bucket}/runs"], ["--store", str(tmp_path / "folder")]
    run = ["run", "--profile", "smoke", "--stages", STAGES, "--no-prefect", "--run-id", "one", "--json"]
    first, second = virtscale(*run, *store), virtscale(*run, *folder)
    assert [first.returncode, second.returncode] == [0, 0], first.stderr
    assert json.loads(first.stdout)["report"] == f"s3://{bucket}/runs/reports/one/report.html"
    assert virtscale(*run, *store).returncode == 0
    assert json.loads(virtscale("runs", "--json", *store).stdout)[0]["state"] == "finished"
    for words in (["report", "one"], ["clean", "one"], ["doctor"]):
        done = virtscale(*words, *store)
        assert done.returncode == 0, done.stderr
    remote, local = open_store(store[1]), open_store(folder[1])
    parts = [key for key in local.keys("") if key.endswith(".parquet") and "clean" not in key]
    assert [key for key in parts if remote.get(key) != local.get(key)] == []
    upload = (read_manifest(remote, "one") or {})["sessions"][0]["upload"]
    assert upload["requests"]["PUT"] > len(parts) / 2
    assert virtscale("runs", "delete", "one", "--yes", *store).returncode == 0
    assert remote.keys("") == []


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("s3://no-such-bucket/x", "there is no bucket no-such-bucket at http://"),
        ("s3://Upper/x", "names of buckets are lower-case; did you mean s3://upper?"),
        ("s3://", "no bucket is named"),
        ("s3://lab/../x", "a prefix has no empty part"),
    ],
)
def test_a_store_that_cannot_be_used_is_exit_2_before_anything(bucket: str, store: str, says: str) -> None:
    done = virtscale("run", "--profile", "smoke", "--no-prefect", "--store", store)
    assert done.returncode == 2
    assert done.stderr.startswith("error: store ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("AWS_SECRET_ACCESS_KEY", "the secret key is not that of this access key"),
        ("AWS_ACCESS_KEY_ID", "does not know this access key; correct AWS_ACCESS_KEY_ID"),
    ],
)
def test_wrong_credentials_are_named(
    bucket: str, monkeypatch: pytest.MonkeyPatch, variable: str, says: str
) -> None:
    monkeypatch.setenv(variable, "wrong")
    with pytest.raises(StoreError, match=says):
        open_store(f"s3://{bucket}/x")


def test_a_gateway_that_dies_in_a_run_and_comes_back_costs_nothing(gateway: Gateway, bucket: str) -> None:
    store = f"s3://{bucket}/away"

    def outage() -> None:
        while not _has_deployed(store):
            time.sleep(0.1)
        daemons.end(gateway.folder, daemons.RGW, 0.0)
        time.sleep(6)
        daemons.start_gateway(gateway)

    away = threading.Thread(target=outage)
    away.start()
    done = virtscale(
        "run", "--profile", "small", "--stages", STAGES, "--run-id", "r", "--no-prefect", "--store", store
    )
    away.join()
    assert done.returncode == 0, done.stderr
    opened = open_store(store)
    batches = scan(opened, "r", "batches", TABLES["batches"])
    assert set(batches["attempt"]) == {1}
    assert (read_manifest(opened, "r") or {})["verdict"] == "valid"


def _has_deployed(store: str) -> bool:
    commits = read_commits(open_store(store, writable=False), "r")
    return any(each.cell.stage == "deploy" for each in commits)


SIDE_BY_SIDE = """
import sys
from flows import lanes
from flows.__main__ import exit_code_of
if __name__ == "__main__":
    lanes.SMALL_VMS = 0
    sys.exit(exit_code_of(sys.argv[1:]))
"""


def test_ctrl_c_while_stages_go_side_by_side_leaves_nothing_behind_and_the_run_goes_on(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTSCALE_PROCESSES", "2")
    script, store = tmp_path / "side_by_side.py", f"s3://{bucket}/stopped"
    script.write_text(SIDE_BY_SIDE)
    words = [
        "run",
        "--profile",
        "small",
        "--stages",
        STAGES,
        "--run-id",
        "r",
        "--no-prefect",
        "--store",
        store,
    ]
    command = [sys.executable, str(script), *words]
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not _has_deployed(store):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    manifest = read_manifest(open_store(store), "r") or {}
    assert process.returncode == 130, said
    assert (manifest["objects_left"], manifest["finished_at"]) == (False, None)
    assert not list((tmp_path / "state").rglob("outbox*"))
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    commits = read_commits(open_store(store), "r")
    interrupted = {each.cell for each in commits if not each.complete}
    assert {
        each.attempt for each in commits if each.cell.stage == "deploy" and each.cell not in interrupted
    } == {1}


@pytest.fixture(scope="module")
def trusted() -> Iterator[Gateway]:
    """A gateway that answers by https."""
    with running(tls=True) as up:
        yield up


@pytest.fixture
def tls_bucket(trusted: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return fresh_bucket(trusted, tmp_path, monkeypatch)


LAZY = """
import sys
from infra.results.lazy import scan_lazy
from infra.results.open import open_store
from tasks.records import TABLES
store = open_store(sys.argv[1], writable=False)
print(len(scan_lazy(store, ["one"], "vm_boots", TABLES["vm_boots"]).collect()))
"""


def test_over_tls_with_a_ca_of_ones_own_everything_works(
    trusted: Gateway, tls_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"s3://{tls_bucket}/runs"
    run = ["run", "--profile", "smoke", "--stages", STAGES, "--no-prefect", "--run-id", "one"]
    for words in (run, ["doctor"], ["report", "one"], ["runs"]):
        done = virtscale(*words, "--store", store)
        assert done.returncode == 0, done.stderr
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.authority))
    read = subprocess.run([sys.executable, "-c", LAZY, store], capture_output=True, text=True, check=True)
    assert read.stdout.split() == ["7"]


def test_a_certificate_that_cannot_be_verified_is_one_line(
    trusted: Gateway, tls_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTSCALE_S3_CA_BUNDLE")
    done = virtscale("run", "--profile", "smoke", "--no-prefect", "--store", f"s3://{tls_bucket}/x")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: store s3://{tls_bucket}/x: the certificate of {trusted.endpoint} cannot be"
    )
    assert done.stderr.endswith("name its CA in VIRTSCALE_S3_CA_BUNDLE\n")
    assert len(done.stderr.splitlines()) == 1


def test_stages_side_by_side_store_what_one_process_does_in_a_folder(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "SMALL_VMS", 0)
    profile = load_profile("smoke", [f"stages={STAGES}"])
    addresses = {"1": str(tmp_path / "folder"), "2": f"s3://{bucket}/lanes"}
    for count, address in addresses.items():
        monkeypatch.setenv("VIRTSCALE_PROCESSES", count)
        conduct(RunRequest(run_id="same", profile=profile, store=address, cluster="virtual:fast", seed=3))
    local, remote = (open_store(address) for address in addresses.values())
    parts = [key for key in local.keys("") if key.endswith(".parquet")]
    assert [key for key in remote.keys("") if key.endswith(".parquet")] == parts
    assert [key for key in parts if remote.get(key) != local.get(key)] == []
    assert not list((tmp_path / "state").rglob("outbox*"))
