"""The served API's promises about objects, kept to our own adapter over HTTPS."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from infra.cluster.kinds import CONFIG_MAP, DATA_VOLUME, NAMESPACE, PVC, VM, VMI
from infra.cluster.port import Object, Ref, Scope, list_all, ref_of
from infra.cluster.real import KubernetesCluster
from infra.cluster.virtual.faults import Fault
from infra.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ProfileError,
    Throttled,
)
from tests.real.manifests import config_map, instance, virtual_machine
from tests.served.conftest import Server

Own = Callable[..., Any]


def bootable(name: str, namespace: str, strategy: str = "Halted") -> Object:
    """A VirtualMachine with an empty disk of its own."""
    vm = virtual_machine(name, namespace, strategy)
    disk = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}
    vm["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": f"{name}-root"}, "spec": disk}]
    vm["spec"]["template"]["metadata"] = {"labels": {"kubevirt.io/domain": name}}
    return vm


async def gone(cluster: KubernetesCluster, ref: Ref) -> None:
    """Wait until an object is no more."""
    while True:
        try:
            await cluster.get(ref)
        except NotFound:
            return
        await asyncio.sleep(0.02)


async def status(cluster: KubernetesCluster, ref: Ref, wanted: str) -> None:
    """Wait until a VirtualMachine says `wanted`."""
    while (await cluster.get(ref)).get("status", {}).get("printableStatus") != wanted:
        await asyncio.sleep(0.02)


def test_an_object_is_created_read_and_deleted(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        config = config_map("one", namespace)
        created = await cluster.create(config)
        assert created["metadata"]["uid"]
        assert await cluster.get(ref_of(config)) == created
        with pytest.raises(AlreadyExists, match='create ConfigMap one: 409 configmaps "one" already exists'):
            await cluster.create(config)
        with pytest.raises(Conflict, match="UID"):
            await cluster.delete(ref_of(config), uid="of-another-object")
        await cluster.delete(ref_of(config), uid=created["metadata"]["uid"])
        with pytest.raises(NotFound, match='404 configmaps "one" not found'):
            await cluster.get(ref_of(config))
        with pytest.raises(NotFound):
            await cluster.delete(ref_of(config))

    server.use(use)


def test_a_dry_run_leaves_nothing(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        await cluster.create(config_map("dry", namespace), dry_run=True)
        await cluster.apply(config_map("dry", namespace), "virtscale", dry_run=True)
        with pytest.raises(NotFound):
            await cluster.get(Ref(CONFIG_MAP, namespace, "dry"))

    server.use(use)


def _without_template(namespace: str) -> Object:
    return {**virtual_machine("vm", namespace), "spec": {"runStrategy": "Halted"}}


WRONG: dict[str, tuple[Callable[[str], Object], type[ClusterError], str]] = {
    "a name in capitals": (lambda ns: config_map("Upper", ns), Invalid, "422 .*metadata.name: Invalid value"),
    "no template": (_without_template, Invalid, "422 .*spec.template.spec.domain: Required value"),
    "a label that is a number": (
        lambda ns: config_map("n", ns) | {"metadata": {"name": "n", "namespace": ns, "labels": {"a": 1}}},
        Invalid,
        "400 metadata.labels",
    ),
    "a claim without a size": (
        lambda ns: {
            "apiVersion": "v1",
            "kind": PVC.kind,
            "metadata": {"name": "c", "namespace": ns},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "much"}}},
        },
        Invalid,
        "no quantity",
    ),
    "no such namespace": (lambda _: config_map("a", "nowhere"), NotFound, 'namespaces "nowhere" not found'),
}


@pytest.mark.parametrize(("make", "error", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_object_is_refused_with_its_field(
    server: Server, namespace: str, make: Callable[[str], Object], error: type[ClusterError], said: str
) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(error, match=said):
            await cluster.create(make(namespace))

    server.use(use)


def test_apply_conflicts_with_another_manager_unless_forced(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        await cluster.apply(config_map("shared", namespace, key="mine"), "one")
        theirs = config_map("shared", namespace, key="theirs")
        with pytest.raises(Conflict, match=r'conflicts with "one": \.data\.key'):
            await cluster.apply(theirs, "two")
        forced = await cluster.apply(theirs, "two", force=True)
        assert forced["data"] == {"key": "theirs"}

    server.use(use)


def test_a_merge_patch_reaches_status_where_the_kind_has_it(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        vm, vmi = virtual_machine("vm", namespace), instance("vmi", namespace, "Pending")
        stale = (await cluster.create(vm))["metadata"]["resourceVersion"]
        await cluster.create(vmi)
        merge = {"status": {"note": "ours"}}
        assert (await cluster.patch(ref_of(vm), merge, subresource="status"))["status"]["note"] == "ours"
        assert "other" not in (await cluster.patch(ref_of(vm), {"status": {"other": "ours"}}))["status"]
        with pytest.raises(NotFound):
            await cluster.patch(ref_of(vmi), merge, subresource="status")
        with pytest.raises(Conflict, match="has been modified"):
            await cluster.patch(ref_of(vm), {"metadata": {"resourceVersion": stale, "labels": {"a": "b"}}})

    server.use(use)


def test_pages_are_parts_of_one_list(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        for number in range(5):
            await cluster.create(config_map(f"c{number}", namespace))
        scope = Scope(CONFIG_MAP, namespace)
        first = await cluster.list(scope, limit=2)
        await cluster.create(config_map("c9", namespace))
        second = await cluster.list(scope, limit=2, continue_=first.continue_)
        again = await cluster.list(scope, limit=2, continue_=first.continue_)
        assert second.items == again.items
        third = await cluster.list(scope, limit=2, continue_=second.continue_)
        names = [obj["metadata"]["name"] for page in (first, second, third) for obj in page.items]
        assert names == ["c0", "c1", "c2", "c3", "c4"]
        assert {first.resource_version} == {second.resource_version, third.resource_version}
        assert third.continue_ == ""
        with pytest.raises(Gone, match="continue parameter is too old"):
            await cluster.list(scope, limit=2, continue_="never-given.2")
        assert len((await list_all(cluster, scope, page=4)).items) == 6

    server.use(use)


def test_selectors_choose_by_label_and_field(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        for name, tier in (("a", "gold"), ("b", "gold"), ("c", "tin")):
            config = config_map(name, namespace)
            config["metadata"]["labels"] = {"tier": tier}
            await cluster.create(config)

        async def names(labels: str = "", fields: str = "") -> list[str]:
            found = await cluster.list(Scope(CONFIG_MAP, namespace, labels, fields))
            return [obj["metadata"]["name"] for obj in found.items]

        assert await names("tier=gold") == ["a", "b"]
        assert await names("tier in (tin, lead)") == ["c"]
        assert await names("tier!=gold,!other") == ["c"]
        assert await names("tier=gold", "metadata.name=b") == ["b"]
        with pytest.raises(Invalid):
            await names("tier in (")

    server.use(use)


def test_a_finalizer_holds_an_object(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        config = config_map("held", namespace)
        config["metadata"]["finalizers"] = ["example.org/hold"]
        await cluster.create(config)
        await cluster.delete(ref_of(config))
        assert (await cluster.get(ref_of(config)))["metadata"]["deletionTimestamp"]
        await cluster.patch(ref_of(config), {"metadata": {"finalizers": None}})
        with pytest.raises(NotFound):
            await cluster.get(ref_of(config))

    server.use(use)


async def _owner_and_owned(cluster: KubernetesCluster, namespace: str) -> tuple[Ref, Ref]:
    owner = await cluster.create(config_map("owner", namespace))
    owned = config_map("owned", namespace)
    named = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [named]
    await cluster.create(owned)
    return ref_of(owner), ref_of(owned)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_what_is_owned_goes_with_its_owner(server: Server, namespace: str, propagation: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        owner, owned = await _owner_and_owned(cluster, namespace)
        await cluster.delete(owner, propagation=propagation)
        await gone(cluster, owned)
        await gone(cluster, owner)

    server.use(use)


def test_an_orphan_stays(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        owner, owned = await _owner_and_owned(cluster, namespace)
        await cluster.delete(owner, propagation="Orphan")
        await gone(cluster, owner)
        await asyncio.sleep(0.2)
        assert not (await cluster.get(owned))["metadata"].get("ownerReferences")

    server.use(use)


def test_a_namespace_goes_with_what_is_in_it(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        await cluster.create(config_map("inside", namespace))
        await cluster.delete(Ref(NAMESPACE, "", namespace))
        await gone(cluster, Ref(NAMESPACE, "", namespace))
        with pytest.raises(NotFound):
            await cluster.get(Ref(CONFIG_MAP, namespace, "inside"))

    server.use(use)


def test_a_vm_starts_and_stops_in_real_time(server: Server, namespace: str) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        vm = bootable("vm", namespace)
        ref = ref_of(vm)
        await cluster.create(vm)
        await status(cluster, ref, "Stopped")
        with pytest.raises(Conflict, match="VM is not running"):
            await cluster.subresource(ref, "stop")
        await cluster.subresource(ref, "start")
        await status(cluster, ref, "Running")
        with pytest.raises(Conflict, match="VM is already running"):
            await cluster.subresource(ref, "start")
        assert (await cluster.get(Ref(VMI, namespace, "vm")))["status"]["phase"] == "Running"
        await cluster.subresource(ref, "stop")
        await gone(cluster, Ref(VMI, namespace, "vm"))
        await cluster.delete(ref)
        await gone(cluster, Ref(DATA_VOLUME, namespace, "vm-root"))
        with pytest.raises(NotFound):
            await cluster.subresource(Ref(VM, namespace, "vm"), "start")

    server.use(use)


def test_an_object_that_no_controller_can_read_ends_nothing(
    server: Server, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        odd = virtual_machine("odd", namespace, "Always")
        odd["spec"]["template"]["spec"]["volumes"] = "none"
        odd["spec"]["dataVolumeTemplates"] = [{}]
        await cluster.create(odd)
        while "virt-controller vm" not in caplog.text:
            await asyncio.sleep(0.02)
        fine = bootable("fine", namespace)
        await cluster.create(fine)
        await status(cluster, ref_of(fine), "Stopped")
        await cluster.delete(ref_of(odd))

    server.use(use)


def test_a_wrong_token_is_refused(server: Server, namespace: str, tmp_path: Any) -> None:
    text = server.kubeconfig.read_text()
    token = text.split('"token": "')[1].split('"')[0]
    forged = tmp_path / "kubeconfig"
    forged.write_text(text.replace(token, "not-it"))

    async def use(cluster: KubernetesCluster) -> None:
        # the version is public
        with pytest.raises(Forbidden, match="401 Unauthorized"):
            await cluster.get(Ref(CONFIG_MAP, namespace, "a"))

    Server(forged).use(use)


def test_faults_count_from_the_start(own: Own) -> None:
    with own(faults=(Fault(kind="throttle", share=1.0, for_s=1000.0),)) as throttled:

        async def use(cluster: KubernetesCluster) -> None:
            with pytest.raises(Throttled, match="429") as caught:
                await cluster.list(Scope(VM))
            assert caught.value.retry_after_s == 1.0

        throttled.use(use)


def test_the_port_and_the_kubeconfig_of_others_are_left_alone(
    server: Server, own: Own, tmp_path: Any
) -> None:
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(ProfileError, match=f"port {port} cannot be listened on"), own(port=port):
        pass
    theirs = tmp_path / "theirs"
    theirs.write_text("apiVersion: v1\nkind: Config\ncontexts: [{name: production}]\n")
    with pytest.raises(ProfileError, match="is left alone"), own(kubeconfig=theirs):
        pass
    assert "production" in theirs.read_text()
