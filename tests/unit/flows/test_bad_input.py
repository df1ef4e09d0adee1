"""Whatever a user types wrong is one line on stderr that says where, what and what to do, and exit code 2."""

import json
from pathlib import Path

import pytest

from tests.unit.flows.conftest import Call

RUN = ("run", "--no-prefect", "--profile", "smoke")

PROFILES = {
    "an unknown key": ("[boot]\nbatchs = [1]", "boot.batchs is not a key; did you mean boot.batches?"),
    "a key of another table": (
        "[golden_image]\nbatches = [1]",
        "golden_image.batches is not a key; did you mean",
    ),
    "an unknown table": ("[bot]\nlimit_s = 1", "bot is not a key; did you mean boot?"),
    "nothing near": ("frobnicate = 1", "frobnicate is not a key; there are name, description"),
    "a negative batch": ("[deploy]\nbatches = [-4, 2]", "deploy.batches[0] is -4; it must be greater than 0"),
    "unordered batches": (
        "[deploy]\nbatches = [4, 2]",
        "deploy.batches must be one or more positive sizes, each",
    ),
    "no batches": ("[deploy]\nbatches = []", "deploy.batches must be one or more positive sizes"),
    "a number as text": ('[vm]\ncores = "4"', "vm.cores is '4'; it must be a whole number"),
    "half a core": ("[vm]\ncores = 4.5", "vm.cores is 4.5; it must be a whole number"),
    "a value for a table": ("boot = 3", "boot is 3; it must be a table of keys"),
    "endless": ("[boot]\nlimit_s = inf", "boot.limit_s is inf; it must be a finite number"),
    "no time at all": ("[boot]\nlimit_s = 1e-300", "boot.limit_s is 1e-300; it must be"),
    "an unknown choice": (
        '[boot]\norder = "sideways"',
        "boot.order is 'sideways'; it must be 'up' or 'down'",
    ),
    "a stage of another version": ('stages = ["churn"]', "stages[0] is 'churn'; it must be 'preflight'"),
    "an unfinished value": ("name = 'a'\nx = \n", "line 2, column 5: not TOML: invalid value"),
    "an unfinished table": ("name = 'a'\n[boot", "line 2"),
    "several mistakes": ("a = 1\nb = 2", "(and 1 more)"),
}


@pytest.mark.parametrize(("text", "said"), PROFILES.values(), ids=PROFILES)
def test_a_wrong_profile_is_one_line(virtscale: Call, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    answer = virtscale("run", "--no-prefect", "--profile", str(path))
    assert answer.code == 2
    assert answer.err.startswith(f"error: profile {path}: ")
    assert said in answer.err
    assert (answer.err.count("\n"), answer.out) == (1, "")


OPTIONS = {
    "an unknown profile": (("--profile", "smke"), "smke is not a profile; did you mean smoke?"),
    "a missing file": (("--profile", "no/such.toml"), "profile no/such.toml: there is no such file"),
    "a folder": (("--profile", "./"), "cannot be read"),
    "--set without =": (("--set", "boot"), "--set boot: write it as key=value"),
    "--set of an unknown key": (("--set", "boot.batchs=1"), "did you mean boot.batches?"),
    "--set of a table": (("--set", "boot=1"), "boot is a table; set one of boot.batches"),
    "--set of a wrong type": (("--set", "boot.limit_s=abc"), "boot.limit_s is 'abc'; it must be a number"),
    "--set of a wrong switch": (("--set", "boot.prime=yes"), "boot.prime is 'yes'; it must be true or false"),
    "--set unordered": (("--set", "boot.batches=4,2"), "error: --set boot.batches=4,2: boot.batches must be"),
    "--set negative": (("--set", "boot.batches=-4,2"), "boot.batches[0] is -4; it must be greater than 0"),
    "an unknown stage": (("--stages", "deploy,bot"), "bot is not a stage; did you mean boot?"),
    "no stage": (("--stages", ","), "no stage is named"),
    "a wrong run id": (("--run-id", "A_1"), "run id 'A_1'"),
    "an empty run id": (("--run-id", ""), "run id ''"),
    "a wrong number": (("--seed", "x"), "'x' is not a valid integer"),
    "a seed of no size": (("--seed", "9" * 30), "is not in the range"),
    "a batch of no size": (
        ("--set", f"deploy.batches={'9' * 30}"),
        "it must be less than or equal to 1000000",
    ),
    "a limit of no length": (("--set", "boot.limit_s=1e300"), "boot.limit_s is 1e+300; it must be less than"),
    "a rate that never sends": (("--set", "boot.rate_per_s=1e-300"), "it must be greater than or equal to"),
    "a namespace of no name": (("--set", "namespace="), "namespace is ''; it must match pattern"),
    "a namespace that no cluster takes": (("--set", "golden_namespace=Ns_1"), "it must match pattern"),
    "a disk smaller than the image": (("--set", "vm.disk_gib=15"), "vm.disk_gib is 15; a clone is at"),
    "an image of no kind": (("--set", "golden_image.url=ftp://a"), "golden_image.url is 'ftp://a'; it must"),
    "binary faults": (("--faults", "binary"), "faults binary: is not text in UTF-8 (byte 0)"),
    "an unknown option": (("--sed", "1"), "No such option '--sed'"),
    "an unknown context": (("--cluster", "nowhere"), "nowhere"),
    "an unknown preset": (("--cluster", "virtual:nowhere"), "no such preset or file"),
    "missing faults": (("--faults", "no.toml"), "no.toml"),
    "another store": (("--store", "gs://bucket"), "gs:// is not supported"),
    "a store that is a file": (("--store", "file"), "is not a folder"),
    "a store below a file": (("--store", "file/deeper"), "is not a folder"),
}


@pytest.mark.parametrize(("options", "said"), OPTIONS.values(), ids=OPTIONS)
def test_a_wrong_option_is_one_line(
    virtscale: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\ncontexts: []\nclusters: []\nusers: []\n")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    answer = virtscale(*RUN, *options)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_an_unreachable_api_server_is_one_line(
    virtscale: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\n"
        "clusters: [{name: away, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: me, user: {}}]\n"
        "contexts: [{name: away, context: {cluster: away, user: me}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    answer = virtscale(*RUN, "--cluster", "away")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "away" in answer.err


def test_a_batch_that_would_not_fit_on_this_machine_is_refused_before_anything(
    virtscale: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTSCALE_SPOOL_MIB", "30")
    answer = virtscale(*RUN, "--run-id", "large", "--set", "boot.batches=8000")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "boot 8000 needs up to 33 MiB and 0 of VIRTSCALE_SPOOL_MIB=30 are taken; raise it" in answer.err
    assert json.loads(virtscale("runs", "--json").out) == []


def test_a_batch_beyond_the_cluster_names_the_limiting_resource(virtscale: Call) -> None:
    answer = virtscale(*RUN, "--run-id", "large", "--set", "boot.batches=90000")
    assert (answer.code, answer.out) == (2, "")
    first, refusal = answer.err.splitlines()
    assert first == "run large"
    assert "90,000 VMs need 202,500 GiB of memory" in refusal
    assert [line["state"] for line in json.loads(virtscale("runs", "--json").out)] == ["refused"]


def test_a_finished_run_whose_results_are_damaged_is_not_said_to_be_valid(
    virtscale: Call, tmp_path: Path
) -> None:
    asked = (*RUN, "--run-id", "r", "--stages", "golden-image,deploy", "--set", "deploy.batches=1", "--keep")
    assert virtscale(*asked).code == virtscale(*asked).code == 0
    (part,) = (tmp_path / "results" / "vm_deploys" / "run_id=r").iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    answer = virtscale(*asked)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"{part.name}: this part is damaged" in answer.err


def test_a_store_that_cannot_be_read_is_one_line(virtscale: Call) -> None:
    answer = virtscale("runs", "--store", "nowhere")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("verb", ["report", "clean"])
def test_a_run_that_the_store_does_not_have_is_one_line(virtscale: Call, tmp_path: Path, verb: str) -> None:
    answer = virtscale(verb, "no-such-run", "--store", str(tmp_path))
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "no-such-run" in answer.err


def test_an_unknown_verb_is_one_line(virtscale: Call) -> None:
    answer = virtscale("rn")
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_a_profile_file_is_never_overwritten(virtscale: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("name = 'mine'\n")
    answer = virtscale("profile", "new", "mine.toml")
    assert answer.code == 2
    assert (tmp_path / "mine.toml").read_text() == "name = 'mine'\n"
