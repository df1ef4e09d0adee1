"""Clean on a machine that does not have the ledger of all that the run created."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flows.__main__ import exit_code_of
from infra import manifests
from infra.cluster.kinds import VM
from infra.cluster.lease import HOLDER, WHERE
from infra.cluster.port import Object, Ref, Scope
from infra.cluster.real import KubernetesCluster
from infra.manifests import Mark
from infra.results.commits import read_commits
from infra.results.manifest import kept_nonce, read_manifest, write_manifest
from infra.results.open import open_store
from infra.served.access import CONTEXT
from tasks import deploy
from tasks.golden_image import sources_of
from tasks.profile import Profile
from tasks.provisioning import machine_of
from tests.real.controlling import unhurried
from tests.served.conftest import Server

RUN, TAKEN = "strays", "taken"


def vm(name: str, profile: Profile, nonce: str, run_id: str = RUN) -> Object:
    mark = Mark(run_id, nonce, "deploy")
    return manifests.virtual_machine(
        name, profile.namespace, mark, machine_of(profile), sources_of(profile)[0]
    )


@pytest.mark.api
@pytest.mark.timeout(300)
def test_what_only_another_machine_knows_is_counted_left_alone_and_not_called_gone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    place = ("--store", str(tmp_path / "store"))
    how = ("--no-prefect", "--cluster", CONTEXT, "--keep", *unhurried())
    run = ("run", "--profile", "smoke", "--run-id", RUN, "--stages", "preflight,golden-image", *how)
    assert exit_code_of((*run, *place)) == 0, capsys.readouterr().err
    store = open_store(place[1])
    manifest = read_manifest(store, RUN)
    assert manifest is not None
    profile, nonce = Profile.model_validate(manifest["profile"]), kept_nonce(store, RUN)
    made = [vm("known-elsewhere-1", profile, nonce), vm("known-elsewhere-2", profile, nonce)]

    async def make(cluster: KubernetesCluster) -> None:
        for each in (*made, vm("copied", profile, "guessed")):
            await cluster.create(each)

    async def left(cluster: KubernetesCluster) -> None:
        found = await cluster.list(Scope(VM, profile.namespace))
        names.update(each["metadata"]["name"] for each in found.items)

    async def remove(cluster: KubernetesCluster) -> None:
        for name in names:
            await cluster.delete(Ref(VM, profile.namespace, name))

    names: set[str] = set()
    server.use(make)
    capsys.readouterr()
    assert exit_code_of(("clean", RUN, "--yes", *place)) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"2 VirtualMachine in {profile.namespace} carry its marks and are in no ledger" in said.err
    assert (
        f"kubectl -n {profile.namespace} delete virtualmachines.kubevirt.io -l virtscale.io/run={RUN}"
        in said.err
    )
    server.use(left)
    assert names == {"known-elsewhere-1", "known-elsewhere-2", "copied"}
    again = read_manifest(store, RUN)
    assert again is not None
    assert again["objects_left"] is True

    server.use(remove)
    assert exit_code_of(("clean", RUN, "--yes", *place)) == 0
    assert f"run {RUN}: nothing of it is left" in capsys.readouterr().out


@pytest.mark.api
@pytest.mark.timeout(300)
def test_a_run_that_was_taken_over_stores_nothing_more_and_deletes_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    store = open_store(str(tmp_path / "store"))
    measure = deploy._measure

    async def take_over(cluster: KubernetesCluster) -> None:
        """As another machine does when this one was silent for a minute; its VMs are there, too."""
        lease = await cluster.get(WHERE)
        run = lease["spec"]["holderIdentity"].rsplit("/", 2)[0]
        words = {"annotations": {HOLDER: f"run {TAKEN} of bob@elsewhere, pid 7"}}
        await cluster.patch(WHERE, {"metadata": words, "spec": {"holderIdentity": f"{run}/other/7"}})
        manifest = read_manifest(store, TAKEN)
        assert manifest is not None
        profile = Profile.model_validate(manifest["profile"])
        await cluster.create(vm("of-the-other", profile, kept_nonce(store, TAKEN), TAKEN))
        write_manifest(store, TAKEN, {**manifest, "sessions": [{"of": "the other"}]})

    async def measured(*about: Any) -> Any:
        summary = await measure(*about)
        await asyncio.to_thread(server.use, take_over)
        return summary

    monkeypatch.setattr(deploy, "_measure", measured)
    how = ("--no-prefect", "--cluster", CONTEXT, "--store", store.address(""), *unhurried())
    stages = ("--stages", "preflight,golden-image,deploy,clean")
    code = exit_code_of(("run", "--profile", "smoke", "--run-id", TAKEN, *stages, *how))
    said = capsys.readouterr().err.splitlines()[-1]
    assert code == 1, said
    assert f"deploy 1: the cluster was taken over by run {TAKEN} of bob@elsewhere, pid 7, since " in said
    assert {each.cell.stage for each in read_commits(store, TAKEN)} == {"preflight", "golden-image"}
    manifest = read_manifest(store, TAKEN)
    assert manifest is not None
    assert [each.get("of") for each in manifest["sessions"]] == ["the other", None]

    async def tidy(cluster: KubernetesCluster) -> None:
        found = await cluster.list(Scope(VM, manifest["profile"]["namespace"]))
        names.update(each["metadata"]["name"] for each in found.items)
        await cluster.delete(Ref(VM, manifest["profile"]["namespace"], "of-the-other"))
        await cluster.delete(WHERE)

    names: set[str] = set()
    server.use(tidy)
    assert "of-the-other" in names
    assert exit_code_of(("clean", TAKEN, "--yes", "--store", store.address(""))) == 0
