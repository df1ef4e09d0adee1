"""The stage tuning on the virtual cluster: what it finds, sets, verifies and takes back."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from infra.cluster.kinds import (
    HYPERCONVERGED,
    KUBELET_CONFIG,
    KUBEVIRT,
    MACHINE_CONFIG_POOL,
    NODE,
    STORAGE_PROFILE,
)
from infra.cluster.port import Cluster, Object, Ref
from infra.errors import InvalidRun, StageError
from infra.world import World, WorldSpec, open_world
from tasks.deploy import deploy_batch
from tasks.knobs import catalogue
from tasks.profile import Profile
from tasks.records import TABLES
from tasks.tuning import Approval, Proposal, proposals, tuning
from tasks.tuning_revert import revert
from tasks.tuning_snapshot import read_snapshot
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

NAMES = {"{storage_class}": "ocs-external-storagecluster-ceph-rbd"}
OTHER: dict[str, Any] = {
    "kubelet-max-pods": 400,
    "kubelet-node-status-max-images": 50,
    "kubelet-api-rate": {"qps": 70, "burst": 140},
    "kubelet-pod-pids-limit": 8192,
    "kubelet-status-update-frequency": "20s",
    "kubelet-serialize-image-pulls": True,
    "kubevirt-api-rate": {"qps": 200, "burst": 400},
    "csi-api-rate": {"qps": 75, "burst": 150},
    "clone-strategy": "csi-clone",
    "boot-source-format": "pvc",
    "snapshot-class": "another",
    "descheduler-mode": "Automatic",
}
"""Values that differ from what the virtual cluster has; of the others, the advice does."""
SETTABLE = [name for name, knob in catalogue().items() if knob.target is not None]


def yes(asked: list[Any]) -> Any:
    """Whoever asks, tuning with proposals or revert with lines."""
    return Approval(frozenset(getattr(each, "knob", each) for each in asked), {"by": "a test"})


def settle(world: World, seconds: float = 60.0) -> None:
    """Let the cluster's controllers work."""

    async def sleep() -> None:
        await world.clock.sleep(seconds)

    world.run(sleep())


def asking(**knobs: Any) -> Profile:
    return profile_of(tuning={"knobs": {name.replace("_", "-"): value for name, value in knobs.items()}})


def statuses(world: World, which: Any = "last_complete") -> dict[str, str]:
    found = [row for row in rows(world, "knobs", which) if row["status"] not in ("not-asked", "by-hand")]
    return {row["knob"]: row["status"] for row in found}


def of(world: World, kind: Any) -> dict[tuple[str, str], Object]:
    store: Any = world.runtime
    found: dict[tuple[str, str], Object] = store.server.store.objects(kind)
    return dict(found)


def state_of(world: World) -> dict[tuple[str, ...], Any]:
    """Every object without its bookkeeping."""
    runtime: Any = world.runtime
    store = runtime.server.store
    found: dict[tuple[str, ...], Any] = {}
    for kind in store.kinds():
        if kind.kind == "NodeNetworkConfigurationEnactment":
            continue
        for key, obj in store.objects(kind).items():
            kept = {"labels", "annotations"}
            meta = {name: value for name, value in obj["metadata"].items() if name in kept and value}
            status = {k: v for k, v in (obj.get("status") or {}).items() if k not in UNSTABLE}
            kept_ = json.loads(json.dumps({**obj, "metadata": meta, "status": status}))
            # server-side apply leaves an empty table where it took the last field away
            found[kind.kind, *key] = without_empty(kept_) if kind is KUBEVIRT else kept_
    return found


def without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: without_empty(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each != {}}


UNSTABLE = {"conditions", "observedGeneration", "images"}


def test_an_audit_changes_nothing(open_virtual: OpenWorld) -> None:
    profile = profile_of(tuning={"mode": "audit", "knobs": {"kubelet-max-pods": 400}})
    with open_virtual() as world:
        runtime: Any = world.runtime
        before = runtime.server.store.resource_version
        world.run(tuning(world, profile, yes))
        assert runtime.server.store.resource_version == before
        assert statuses(world) == {"kubelet-max-pods": "differs"}
        row = next(row for row in rows(world, "knobs") if row["knob"] == "kubelet-max-pods")
        assert (row["before"], row["desired"], row["effective"]) == ("250", "400", "250")
        assert {row["knob"] for row in rows(world, "knobs")} >= set(catalogue())


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for all knobs: each test takes back what it set."""
    store = str(tmp_path_factory.mktemp("store"))
    with open_world(WorldSpec(run_id="knobs", store=store, cluster="virtual:fast", schemas=TABLES)) as world:
        yield world


@pytest.mark.parametrize("name", [name for name in SETTABLE if name != "etcd-quota"])
def test_each_knob_is_set_in_force_and_taken_back(shared_world: World, name: str) -> None:
    world, value = shared_world, OTHER.get(name, catalogue()[name].advice)
    profile = profile_of(tuning={"knobs": {name: value}})
    before = state_of(world)
    world.run(tuning(world, profile, yes))
    assert statuses(world)[name] == "applied"
    settle(world)
    assert state_of(world) != before
    reverted = world.run(revert(world, profile, yes))
    assert reverted is not None
    assert [(row["knob"], row["status"]) for row in reverted] == [(name, "reverted")]
    settle(world)
    after = state_of(world)
    if name == "network-interface-mtu":
        assert '"mtu": 1500' in after["Node", "", "worker-000"]["metadata"]["annotations"][INTERFACES]
        after, before = without_nodes(after), without_nodes(before)
    assert after == before


def without_nodes(state: dict[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    return {key: obj for key, obj in state.items() if key[0] != "Node"}


def test_what_cannot_be_taken_back_is_named(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(tuning(world, asking(etcd_quota=16), yes))
        found = world.run(revert(world, asking(etcd_quota=16), yes))
        assert found is not None
        assert [(row["status"], row["note"]) for row in found] == [
            ("not-reverted", "etcd's quota cannot be lowered")
        ]


INTERFACES = "virtual.virtscale.io/interfaces"


def test_limits_reach_the_components_and_the_buckets(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(tuning(world, asking(kubevirt_api_rate={"qps": 200, "burst": 400}), yes))
        runtime: Any = world.runtime
        rates = runtime.plane.rates
        assert {rates.rate(name).qps for name in ("virt_api", "virt_controller", "virt_handler")} == {200}


def test_a_pair_below_the_default_is_warned_of(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(tuning(world, asking(kubevirt_api_rate={"qps": 150, "burst": 200}), yes))
        row = next(row for row in rows(world, "knobs") if row["knob"] == "kubevirt-api-rate")
        assert "LOWERS virt-controller" in row["note"]


def test_what_is_as_desired_is_not_touched(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        runtime: Any = world.runtime
        before = runtime.server.store.resource_version
        summary = world.run(tuning(world, asking(kubelet_max_pods=250), yes))
        assert runtime.server.store.resource_version == before
        assert summary["as_desired"] == 1
        assert read_snapshot(world.results.store, world.run_id) is None


def as_on_a_real_cluster(world: World) -> World:
    """The same world, which no longer says that nobody has to be asked."""
    return replace(world, name="kubernetes")


def test_a_refused_approval_leaves_all_as_it_was(open_virtual: OpenWorld) -> None:
    profile = profile_of(tuning={"mode": "apply", "knobs": {"kubelet-max-pods": 400}})
    asked: list[str] = []
    with open_virtual() as world:
        runtime: Any = world.runtime
        before = runtime.server.store.resource_version

        def no(proposed: list[Proposal]) -> Approval:
            asked.extend(map(str, proposed))
            return Approval(None, {"by": "Ada"})

        with pytest.raises(InvalidRun, match="not approved, nothing was changed"):
            world.run(tuning(as_on_a_real_cluster(world), profile, no))
        assert runtime.server.store.resource_version == before
        (refusal,) = world.results.commits()
        assert (refusal.complete, refusal.summary["approval"]) == (False, {"by": "Ada"})
    assert asked == ["kubelet-max-pods = 400 on KubeletConfig virtscale: reboots every worker"]


def test_knobs_that_are_to_be_left_are_left_and_the_others_are_set(open_virtual: OpenWorld) -> None:
    knobs = {"kubelet-max-pods": 400, "clone-strategy": "csi-clone"}
    profile = profile_of(tuning={"mode": "apply", "knobs": knobs})

    def only_clones(proposed: list[Proposal]) -> Approval:
        assert {each.knob for each in proposed} == set(knobs)
        return Approval(frozenset({"clone-strategy"}), {"by": "Ada"})

    with open_virtual() as world:
        real = as_on_a_real_cluster(world)
        assert {each.knob for each in world.run(proposals(real, profile))} == set(knobs)
        summary = world.run(tuning(real, profile, only_clones))
        status = {row["knob"]: row["status"] for row in rows(world, "knobs")}
        assert (status["kubelet-max-pods"], status["clone-strategy"]) == ("left", "applied")
        assert (summary["applied"], summary["differ"], summary["approval"]) == (1, 1, {"by": "Ada"})
        assert [each.knob for each in world.run(proposals(real, profile))] == ["kubelet-max-pods"]


def test_elsewhere_than_on_the_virtual_cluster_the_default_is_an_audit(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        summary = world.run(tuning(as_on_a_real_cluster(world), asking(kubelet_max_pods=400), yes))
        assert (summary["mode"], summary["differ"]) == ("audit", 1)


class KilledAfter:
    """A cluster that never answers after so many server-side applies."""

    def __init__(self, inner: Cluster, applies: int) -> None:
        self._inner, self._left = inner, applies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def apply(self, *args: Any, **kwargs: Any) -> Object:
        self._left -= 1
        done = await self._inner.apply(*args, **kwargs)
        if self._left <= 0:
            raise asyncio.CancelledError
        return done


@pytest.mark.parametrize("applies", [1, 2, 3])
def test_killed_between_apply_and_verify_a_revert_restores(open_virtual: OpenWorld, applies: int) -> None:
    profile = asking(
        kubelet_max_pods=400, kubevirt_api_rate={"qps": 300, "burst": 500}, clone_strategy="csi-clone"
    )
    with open_virtual() as world:
        before = state_of(world)
        with pytest.raises(asyncio.CancelledError):
            world.run(tuning(_through(world, KilledAfter(world.cluster, applies)), profile, yes))
        assert state_of(world) != before
    with open_virtual() as world:
        found = world.run(revert(world, profile, yes))
        assert found is not None
        assert {row["status"] for row in found} == {"reverted"}
        settle(world)
        assert state_of(world) == before
        assert world.run(revert(world, profile, yes)) is None


def _through(world: World, cluster: Any) -> World:
    return replace(world, cluster=cluster)


def test_a_run_that_goes_on_after_a_kill_remembers_the_first_values(open_virtual: OpenWorld) -> None:
    profile = asking(kubelet_max_pods=400, kubelet_pod_pids_limit=8192, clone_strategy="csi-clone")
    with open_virtual() as world:
        before = state_of(world)
        with pytest.raises(asyncio.CancelledError):
            world.run(tuning(_through(world, KilledAfter(world.cluster, 2)), profile, yes))
        world.run(tuning(world, profile, yes))
        assert set(statuses(world).values()) <= {"applied", "as-desired"}
        world.run(revert(world, profile, yes))
        settle(world)
        assert state_of(world) == before


def test_what_somebody_else_set_since_is_left_and_named(open_virtual: OpenWorld) -> None:
    profile = asking(clone_strategy="csi-clone")
    with open_virtual() as world:
        world.run(tuning(world, profile, yes))
        name = profile.vm.storage_class
        ref = Ref(STORAGE_PROFILE, "", name)
        world.run(world.cluster.patch(ref, {"spec": {"cloneStrategy": "copy"}}))
        found = world.run(revert(world, profile, yes))
        assert found is not None
        assert found[0]["status"] == "not-reverted"
        assert "somebody else set spec.cloneStrategy to copy" in found[0]["note"]
        assert world.run(world.cluster.get(ref))["spec"] == {"cloneStrategy": "copy"}


def test_a_knob_that_the_cluster_lacks_is_not_applicable(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        ref = Ref(HYPERCONVERGED, "openshift-cnv", "kubevirt-hyperconverged")
        world.run(world.cluster.delete(ref))
        world.run(tuning(world, asking(migrations_per_cluster=25), yes))
        assert statuses(world)["migrations-per-cluster"] == "not-applicable"


def kubelet_config(name: str, labels: dict[str, str], **spec: Any) -> Object:
    return {
        "apiVersion": KUBELET_CONFIG.api_version,
        "kind": KUBELET_CONFIG.kind,
        "metadata": {"name": name},
        "spec": {"machineConfigPoolSelector": {"matchLabels": labels}, **spec},
    }


def test_traps_are_found(open_virtual: OpenWorld) -> None:
    wrong = kubelet_config("custom", {"custom-kubelet": "enabled"}, kubeletConfig={"maxPods": 500})
    pool = {"pools.operator.machineconfiguration.openshift.io/worker": ""}
    nested = kubelet_config("nested", pool, kubeletConfig={"autoSizingReserved": True})
    hyperconverged = Ref(HYPERCONVERGED, "openshift-cnv", "kubevirt-hyperconverged")
    with open_virtual() as world:
        world.run(world.cluster.create(wrong))
        world.run(world.cluster.create(nested))
        world.run(world.cluster.patch(hyperconverged, {"spec": {"tuningPolicy": None}}))
        world.run(world.cluster.patch(Ref(MACHINE_CONFIG_POOL, "", "worker"), {"spec": {"paused": True}}))
        settle(world)
        world.run(tuning(world, profile_of(tuning={"mode": "audit"}), yes))
        found = {row["knob"] for row in rows(world, "knobs") if row["status"] == "trap"}
        assert found == {
            "selector-without-pool",
            "nested-auto-sizing",
            "policy-without-effect",
            "paused-pool",
        }
        node = of(world, NODE)["", "worker-000"]
        assert node["status"]["allocatable"]["pods"] == "250"
        assert (
            '"autoSizingReserved": false' in node["metadata"]["annotations"]["virtual.virtscale.io/kubelet"]
        )


def test_a_kubelet_config_says_success_before_any_node_has_it(open_virtual: OpenWorld) -> None:
    """The race of a roll-out: accepted, and the pool still Updated for its old configuration."""
    pool = {"pools.operator.machineconfiguration.openshift.io/worker": ""}
    with open_virtual() as world:
        world.run(world.cluster.create(kubelet_config("mine", pool, kubeletConfig={"maxPods": 300})))
        settle(world, 0.04)
        assert of(world, KUBELET_CONFIG)["", "mine"]["status"]["conditions"][0]["type"] == "Success"
        said = {
            c["type"]: c["status"]
            for c in of(world, MACHINE_CONFIG_POOL)["", "worker"]["status"]["conditions"]
        }
        assert (said["Updated"], said["Updating"]) == ("True", "False")
        assert of(world, NODE)["", "worker-000"]["status"]["allocatable"]["pods"] == "250"


def test_a_paused_pool_is_no_roll_out(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(world.cluster.patch(Ref(MACHINE_CONFIG_POOL, "", "worker"), {"spec": {"paused": True}}))
        profile = profile_of(tuning={"knobs": {"kubelet-max-pods": 400}, "limit_s": 50})
        with pytest.raises(StageError):
            world.run(tuning(world, profile, yes))
        assert read_snapshot(world.results.store, world.run_id) is not None
        found = world.run(revert(world, profile, yes))
        assert found is not None
        assert found[0]["status"] == "reverted"


def test_a_class_that_clones_by_copy_is_slow_and_the_canary_says_so(open_virtual: OpenWorld) -> None:
    profile = asking(clone_strategy="copy")
    with open_virtual() as world:
        world.run(tuning(world, profile, yes))
        began_ns = world.clock.now_ns()
        with pytest.raises(StageError, match="cloned by copy, not from the snapshot"):
            world.run(deploy_batch(world, profile, 1))
        assert (world.clock.now_ns() - began_ns) / 1e9 > 21 * 1024 / 200
        world.run(revert(world, profile, yes))
        began_ns = world.clock.now_ns()
        assert world.run(deploy_batch(world, profile, 1))["verdict"] == "valid"
        assert (world.clock.now_ns() - began_ns) / 1e9 < 60
