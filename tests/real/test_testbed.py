"""What the testbed promises, asked of a real kube-apiserver.

The CRDs are real, KubeVirt's and CDI's webhooks are absent: a VirtualMachine which virt-api would refuse for
more than its schema is accepted here.
"""

import asyncio
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ClusterError, Conflict, NotFound
from infra.testbed import apply, binaries, crds, processes, servers, virt_api
from infra.testbed.state import State, for_kubeconfig, read
from tests.real.manifests import instance, virtual_machine

# The first test pays for the start of the servers, on a busy machine half a minute.
pytestmark = [pytest.mark.api, pytest.mark.timeout(600)]


def paths(namespace: str) -> dict[str, str]:
    base = f"/apis/kubevirt.io/v1/namespaces/{namespace}"
    return {"vms": f"{base}/virtualmachines", "vmis": f"{base}/virtualmachineinstances"}


def test_every_crd_is_established_and_served(testbed: State) -> None:
    status, answer = apply.request(testbed, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert status == 200
    served = {item["metadata"]["name"]: item["status"]["conditions"] for item in answer["items"]}
    assert set(crds.names(crds.load().crds)) <= set(served)
    for name, conditions in served.items():
        assert any(c["type"] == "Established" and c["status"] == "True" for c in conditions), name


def test_an_unknown_field_is_refused_under_strict_validation(testbed: State, namespace: str) -> None:
    if crds.schema_folder() is None:
        pytest.skip("no real CRD schemas here: the permissive ones refuse nothing")
    vm = virtual_machine("typo", namespace)
    vm["spec"]["runstrategy"] = "Halted"
    status, answer = apply.request(testbed, "POST", f"{paths(namespace)['vms']}?fieldValidation=Strict", vm)
    assert status == 400
    assert 'unknown field "spec.runstrategy"' in answer["message"]
    assert apply.request(testbed, "POST", paths(namespace)["vms"], vm)[0] == 201, (
        "without Strict it is dropped"
    )


def test_the_status_of_a_virtual_machine_is_written_by_its_subresource_only(
    testbed: State, namespace: str
) -> None:
    vm = virtual_machine("vm", namespace)
    vm["status"] = {"printableStatus": "Running"}
    status, created = apply.request(testbed, "POST", paths(namespace)["vms"], vm)
    assert status == 201
    assert "printableStatus" not in created.get("status", {})
    apply.apply_status(testbed, {**vm, "status": {"printableStatus": "Stopped"}})
    _, found = apply.request(testbed, "GET", f"{paths(namespace)['vms']}/vm")
    assert found["status"]["printableStatus"] == "Stopped"
    assert found["metadata"]["generation"] == 1


def test_an_instance_has_no_status_subresource_and_its_status_raises_its_generation(
    testbed: State, namespace: str
) -> None:
    vmi = instance("vmi", namespace, "Pending")
    status, created = apply.request(testbed, "POST", paths(namespace)["vmis"], vmi)
    assert status == 201
    assert created["status"]["phase"] == "Pending"
    apply.apply(testbed, [instance("vmi", namespace, "Running")])
    _, found = apply.request(testbed, "GET", f"{paths(namespace)['vmis']}/vmi")
    assert found["status"]["phase"] == "Running"
    assert found["metadata"]["generation"] == 2
    with pytest.raises(ClusterError, match="404"):
        apply.apply_status(testbed, vmi)


def test_a_field_of_another_manager_is_a_conflict(testbed: State, namespace: str) -> None:
    vm = virtual_machine("owned", namespace)
    apply.apply(testbed, [vm])
    vm["spec"]["runStrategy"] = "Always"
    path = f"{paths(namespace)['vms']}/owned?fieldManager=somebody-else"
    status, answer = apply.request(testbed, "PATCH", path, vm)
    assert (status, answer["reason"]) == (409, "Conflict")


def test_the_storage_that_profiles_name_by_default_is_there(testbed: State) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses/ocs-external-storagecluster-ceph-rbd"
    status, found = apply.request(testbed, "GET", path)
    assert (status, found["volumeBindingMode"]) == (200, "Immediate")


def test_start_arrives_through_the_aggregated_api_and_is_answered_202_with_an_empty_body(
    testbed: State, namespace: str
) -> None:
    asked: list[tuple[str, str, str, Mapping[str, Any]]] = []

    async def start_stop(namespace: str, name: str, verb: str, options: Mapping[str, Any]) -> int:
        asked.append((namespace, name, verb, options))
        if name == "busy":
            raise Conflict(
                'Operation cannot be fulfilled on virtualmachine.kubevirt.io "busy": VM is running'
            )
        if name == "absent":
            raise NotFound('virtualmachine.kubevirt.io "absent" not found')
        return 202

    base = f"/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines"

    async def ask() -> list[tuple[int, Any]]:
        async with virt_api.serving(testbed, start_stop):
            return [
                await asyncio.to_thread(
                    apply.request, testbed, "PUT", f"{base}/{name}/start", {"paused": False}
                )
                for name in ("vm", "busy", "absent")
            ]

    accepted, conflict, absent = asyncio.run(ask())
    assert accepted == (202, "")
    assert asked[0] == (namespace, "vm", "start", {"paused": False})
    assert (conflict[0], conflict[1]["reason"]) == (409, "Conflict")
    assert (absent[0], absent[1]["details"]["kind"]) == (404, "virtualmachine")
    status, _ = apply.request(testbed, "GET", "/apis/subresources.kubevirt.io/v1")
    assert status == 404, "the registration went with its server"


def test_the_aggregated_api_answers_406_to_json_alone_and_401_without_the_front_proxy(testbed: State) -> None:
    async def start_stop(namespace: str, name: str, verb: str, options: Mapping[str, Any]) -> int:
        return 202

    path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/vm/start"

    async def ask() -> list[int]:
        async with virt_api.serving(testbed, start_stop):
            return [
                await asyncio.to_thread(put, testbed, testbed.api_port, path, "admin"),
                await asyncio.to_thread(put, testbed, testbed.agg_port, path, ""),
            ]

    assert asyncio.run(ask()) == [406, 401]


def put(testbed: State, port: int, path: str, user: str) -> int:
    context = ssl.create_default_context(cafile=str(testbed.pki / "ca.crt"))
    if user:
        context.load_cert_chain(testbed.pki / f"{user}.crt", testbed.pki / f"{user}.key")
    with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)) as connection:
        connection.request("PUT", path, "{}", {"Accept": "application/json"})
        return connection.getresponse().status


def test_a_deleted_owner_takes_its_data_volume_along_and_a_namespace_goes(
    testbed: State, namespace: str
) -> None:
    vm = virtual_machine("owner", namespace)
    _, created = apply.request(testbed, "POST", paths(namespace)["vms"], vm)
    owner = {
        "apiVersion": vm["apiVersion"],
        "kind": vm["kind"],
        "name": "owner",
        "uid": created["metadata"]["uid"],
    }
    volume = {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": "owned", "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
    }
    apply.apply(testbed, [volume])
    apply.delete(testbed, vm)
    wait_until_gone(testbed, apply.object_path(volume))
    within = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    apply.delete(testbed, within)
    wait_until_gone(testbed, apply.object_path(within))


def wait_until_gone(testbed: State, path: str) -> None:
    apply.wait_until(lambda: apply.request(testbed, "GET", path)[0] == 404, f"{path} is still there")


def test_up_again_changes_nothing(testbed: State) -> None:
    before = [servers.process(testbed.folder, name) for name in servers.SERVERS]
    assert servers.up(testbed.folder) == testbed
    assert [servers.process(testbed.folder, name) for name in servers.SERVERS] == before


def test_state_json_says_where_everything_is(testbed: State) -> None:
    assert for_kubeconfig(testbed.kubeconfig) == testbed
    recorded = json.loads((testbed.folder / "state.json").read_text())
    assert Path(recorded["pki"]["front-proxy-ca.crt"]).exists()
    assert recorded["context"] == "virtscale-testbed"
    assert testbed.kubeconfig.stat().st_mode & 0o077 == 0


def test_nothing_is_left_behind_after_down(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    state = servers.up(folder)
    started = [process for name in servers.SERVERS if (process := servers.process(folder, name))]
    assert len(started) == 3
    servers.down(folder)
    assert not any(process.is_alive() for process in started)
    assert not any(str(folder) in line for line in command_lines())
    again = servers.up(folder)
    assert again == state, "the same ports, the same data"
    servers.down(folder)
    servers.forget(folder)
    assert not folder.exists()


def test_a_recycled_pid_is_not_ours() -> None:
    mine = processes.Process(os.getpid(), start_ticks=1)
    assert not mine.is_alive()
    processes.stop([mine])


def test_no_testbed_is_no_state(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    with pytest.raises(ClusterError, match="make testbed-up"):
        for_kubeconfig(tmp_path / "kubeconfig")


def test_a_built_binary_is_found_under_the_hash_of_its_inputs() -> None:
    assert not binaries.missing()
    assert {file.parent.name.split("-")[0] for file in binaries.paths().values()} == {"etcd", "kube"}


def command_lines() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
