"""Tuning on a real API server with OpenShift's real CRDs; its operators are our own small controllers."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.kinds import KINDS, KUBELET_CONFIG, KUBEVIRT, LEASE, MACHINE_CONFIG_POOL, NETWORK_POLICY
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import Invalid, InvalidRun, NotFound
from infra.testbed import crds
from infra.testbed.state import CONTEXT, State
from infra.world import World, WorldSpec, open_world
from tasks import roll_out, tuning_revert
from tasks import tuning as tuning_stage
from tasks.knobs import Knob, Target, catalogue
from tasks.profile import Profile
from tasks.records import TABLES
from tasks.tuning import Approval, Change, Proposal, audit, look_at, manifest_of, tuning
from tasks.tuning_revert import revert
from tests.real.controlling import virtscale

# The first test pays for the start of the servers and of the controllers.
pytestmark = [
    pytest.mark.api,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        crds.schema_folder() is None, reason="OpenShift's real CRDs are not here: set VIRTSCALE_CRD_SCHEMAS"
    ),
]

OTHER: dict[str, Any] = {
    "kubelet-max-pods": 400,
    "kubelet-node-status-max-images": 50,
    "kubelet-api-rate": {"qps": 70, "burst": 140},
    "kubelet-pod-pids-limit": 8192,
    "kubelet-status-update-frequency": "20s",
    "kubelet-serialize-image-pulls": True,
    "csi-api-rate": {"qps": 75, "burst": 150},
    "clone-strategy": "csi-clone",
    "boot-source-format": "pvc",
    "snapshot-class": "another",
    "descheduler-mode": "Automatic",
    "migration-progress-timeout": 200,
    "cpu-allocation-ratio": 4,
    "memory-overcommit": 120,
    "memory-merging": {"merging": "yes"},
}
"""Values that differ from what the testbed has; of the others, the advice does."""
KNOBS: dict[str, tuple[Knob, Target]] = {
    name: (knob, knob.target) for name, knob in catalogue().items() if knob.target is not None
}
SEVERAL = {name: OTHER[name] for name in ("kubelet-max-pods", "clone-strategy", "descheduler-mode")}
REPORTS = {"conditions", "observedGeneration", "images"}
SETTLED_S = 120.0


def yes(asked: list[Any]) -> Any:
    """Whoever asks, tuning with proposals or revert with lines."""
    return Approval(frozenset(getattr(each, "knob", each) for each in asked), {"by": "a test"})


def value_of(name: str) -> Any:
    return OTHER.get(name, catalogue()[name].advice)


def asking(knobs: dict[str, Any], mode: str = "apply") -> Profile:
    sections = {
        "deploy": {"batches": [2]},
        "boot": {"batches": [2]},
        "tuning": {"mode": mode, "knobs": knobs},
    }
    return Profile.model_validate({"name": "test", **sections})


@pytest.fixture(scope="module")
def world(controlled: State, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for all: each test takes back what it set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(controlled.kubeconfig))
        # operators here take tenths of seconds, not minutes
        for module in (tuning_stage, tuning_revert):
            patch.setattr(module, "FIRST_PAUSE_S", 0.1)
        store = str(tmp_path_factory.mktemp("store"))
        with open_world(WorldSpec(run_id="knobs", store=store, cluster=CONTEXT, schemas=TABLES)) as opened:
            yield opened


async def everything(world: World) -> dict[tuple[str, ...], Object]:
    """Every object of every kind that virtscale knows and the API server lists, but Leases.

    The API server renews one of its own every few seconds, whatever anybody does.
    """
    listed = await asyncio.gather(*(_listed(world, Scope(kind)) for kind in KINDS if kind != LEASE))
    return {
        (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj
        for objects in listed
        for obj in objects
    }


async def _listed(world: World, scope: Scope) -> list[Object]:
    try:
        return (await list_all(world.cluster, scope)).items
    except (NotFound, Invalid):
        return []


def versions(world: World) -> dict[tuple[str, ...], str]:
    """The resource version of every object."""
    return {key: obj["metadata"]["resourceVersion"] for key, obj in world.run(everything(world)).items()}


def state_of(world: World) -> dict[tuple[str, ...], Any]:
    """Every object without its bookkeeping, and without what reports when something was last done."""
    return {
        key: kept
        for key, obj in world.run(everything(world)).items()
        if key[0] != "NodeNetworkConfigurationEnactment" and (kept := _kept(obj))
    }


def _kept(obj: Object) -> Any:
    meta = {key: obj["metadata"][key] for key in ("labels", "annotations") if obj["metadata"].get(key)}
    status = {
        k: v for k, v in (obj.get("status") or {}).items() if k not in ("conditions", "observedGeneration")
    }
    return _without_empty({**obj, "metadata": meta, "status": status})


def _without_empty(value: Any) -> Any:
    """Server-side apply leaves an empty table where it took the last field away."""
    if not isinstance(value, dict):
        return value
    inner = {key: _without_empty(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each != {}}


def becomes(world: World, expected: dict[tuple[str, ...], Any]) -> None:
    """The cluster's state is as expected once its operators are done."""

    async def sleep() -> None:
        await asyncio.sleep(0.3)

    for _ in range(int(SETTLED_S / 0.3)):
        if (found := state_of(world)) == expected:
            return
        world.run(sleep())
    differing = {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
    assert found == expected, differing


def rolled_back(world: World, profile: Profile) -> list[tuple[str, str, str]]:
    rows = world.run(revert(world, profile, yes)) or []
    return [(row["knob"], row["status"], row["note"] or "") for row in rows]


@pytest.mark.parametrize("name", KNOBS)
def test_every_manifest_of_the_catalogue_is_accepted_under_strict_validation(world: World, name: str) -> None:
    knob, target = KNOBS[name]
    look = look_at(world, asking({name: value_of(name)}))
    ref = world.run(look.target(target))
    assert ref is not None, f"{target.kind} is not on the testbed"
    manifest = manifest_of(world, Change(ref, target, [(knob, look.named(value_of(name)))]))
    before = world.run(look.one(ref))
    answer = world.run(world.cluster.apply(manifest, "virtscale-test", force=True, dry_run=True))
    assert answer["metadata"]["name"] == ref.name
    assert world.run(look_at(world, asking({})).one(ref)) == before, "a dry run changes nothing"


def test_an_unknown_field_would_have_been_refused(world: World) -> None:
    selector = {"matchLabels": {"a": "b"}}
    config = {
        "apiVersion": KUBELET_CONFIG.api_version,
        "kind": KUBELET_CONFIG.kind,
        "metadata": {"name": "typo"},
        "spec": {"machineConfigPoolSelectors": selector},
    }
    with pytest.raises(Invalid, match=r"\.spec\.machineConfigPoolSelectors: field not declared in schema"):
        world.run(world.cluster.apply(config, "virtscale-test", dry_run=True))


def test_an_audit_changes_nothing(world: World) -> None:
    wanted = {name: value_of(name) for name in KNOBS}
    before = versions(world)
    findings = world.run(audit(world, asking(wanted, "audit")))
    stage = world.run(tuning(world, asking(wanted, "audit"), yes))
    assert versions(world) == before
    assert stage["mode"] == "audit"
    by_knob = {finding.knob: finding for finding in findings}
    assert by_knob["kubelet-max-pods"].status == "differs"
    assert by_knob["kubelet-max-pods"].before == "250"
    assert {finding.status for finding in findings} <= {"differs", "as-desired", "by-hand"}


def test_a_refused_approval_leaves_all_as_it_was(world: World) -> None:
    asked: list[str] = []

    def no(proposed: list[Proposal]) -> Approval:
        asked.extend(map(str, proposed))
        return Approval(None, {"by": "a test"})

    before = versions(world)
    with pytest.raises(InvalidRun, match="not approved, nothing was changed"):
        world.run(tuning(world, asking(SEVERAL), no))
    assert versions(world) == before
    assert asked[0] == "kubelet-max-pods = 400 on KubeletConfig virtscale: reboots every worker"


@pytest.mark.parametrize("kind", {target.kind: None for _, target in KNOBS.values()})
def test_the_knobs_of_each_object_are_set_in_force_and_taken_back(world: World, kind: str) -> None:
    names = {name for name, (_, target) in KNOBS.items() if target.kind == kind} - {"etcd-quota"}
    before, profile = state_of(world), asking({name: value_of(name) for name in names})
    summary = world.run(tuning(world, profile, yes))
    assert (summary["applied"], summary["differ"]) == (len(names), 0)
    assert state_of(world) != before
    assert {(name, status) for name, status, _ in rolled_back(world, profile)} == {
        (name, "reverted") for name in names
    }
    becomes(world, _with_mtu(before) if kind == NETWORK_POLICY.kind else before)


def _with_mtu(state: dict[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    """The former MTU was set by policy: the nodes now have it said."""
    interface = {"mtu": 1500, "name": "ens1f0", "state": "up", "type": "ethernet"}
    said = {"virtual.virtscale.io/interfaces": json.dumps({"ens1f0": interface}, sort_keys=True)}
    found = dict(state)
    for key, obj in state.items():
        if key[0] == "Node" and "node-role.kubernetes.io/worker" in obj["metadata"].get("labels", {}):
            meta = {**obj["metadata"], "annotations": {**obj["metadata"]["annotations"], **said}}
            found[key] = {**obj, "metadata": meta}
    return found


def test_a_kubelet_config_reaches_every_worker_by_a_roll_out_of_the_pool(world: World) -> None:
    profile = asking({"kubelet-max-pods": 400, "kubelet-auto-sizing-reserved": True})
    pool = Ref(MACHINE_CONFIG_POOL, "", "worker")
    before = world.run(world.cluster.get(pool))["status"]["configuration"]["name"]
    world.run(tuning(world, profile, yes))
    found = world.run(world.cluster.get(pool))
    assert found["spec"]["configuration"]["name"] == found["status"]["configuration"]["name"] != before
    assert found["status"]["updatedMachineCount"] == found["status"]["machineCount"] == 3
    nodes = [obj for key, obj in world.run(everything(world)).items() if key[0] == "Node"]
    workers = [node for node in nodes if "node-role.kubernetes.io/worker" in node["metadata"]["labels"]]
    assert {node["status"]["allocatable"]["pods"] for node in workers} == {"400"}
    rolled_back(world, profile)
    assert world.run(world.cluster.get(pool))["status"]["configuration"]["name"] == before


def test_one_pair_of_limits_reaches_all_four_components(world: World) -> None:
    profile = asking({"kubevirt-api-rate": {"qps": 300, "burst": 500}})
    world.run(tuning(world, profile, yes))
    ref = Ref(KUBEVIRT, "openshift-cnv", "kubevirt-kubevirt-hyperconverged")
    configuration = world.run(world.cluster.get(ref))["spec"]["configuration"]
    limits = [configuration[f"{component}Configuration"] for component in ("api", "controller", "handler")]
    assert [each["restClient"]["rateLimiter"]["tokenBucketRateLimiter"]["qps"] for each in limits] == [
        300
    ] * 3
    rolled_back(world, profile)


class KilledAfterOneApply:
    """A cluster that never answers after a server-side apply."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def apply(self, *args: Any, **kwargs: Any) -> Object:
        await self._inner.apply(*args, **kwargs)
        raise asyncio.CancelledError


def test_killed_between_apply_and_verify_a_revert_restores(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # deleted before the pool was rendered, a KubeletConfig starts no roll-out at all
    monkeypatch.setattr(roll_out, "BEGIN_LIMIT_S", 5.0)
    before, profile = state_of(world), asking(SEVERAL)
    cut_off = replace(world, cluster=KilledAfterOneApply(world.cluster))
    with pytest.raises(asyncio.CancelledError):
        world.run(tuning(cut_off, profile, yes))
    assert {status for _, status, _ in rolled_back(world, profile)} == {"reverted"}
    becomes(world, before)
    assert world.run(revert(world, profile, yes)) is None


def test_auto_sizing_in_the_wrong_place_is_accepted_and_named_by_the_audit(
    world: World,
) -> None:
    trap = {
        "apiVersion": KUBELET_CONFIG.api_version,
        "kind": KUBELET_CONFIG.kind,
        "metadata": {"name": "nested"},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {"no-such": "pool"}},
            "kubeletConfig": {"autoSizingReserved": True},
        },
    }
    world.run(world.cluster.create(trap))
    try:
        found = world.run(audit(world, asking({}, "audit")))
    finally:
        world.run(world.cluster.delete(Ref(KUBELET_CONFIG, "", "nested")))
    said = {finding.knob: finding.object for finding in found if finding.status == "trap"}
    assert said["nested-auto-sizing"] == said["selector-without-pool"] == "KubeletConfig nested"


def test_the_command_line_asks_applies_and_takes_back(controlled: State, tmp_path: Path) -> None:
    knobs = ("--set", "tuning.knobs.node-netdev-max-backlog=6000", "--set", "tuning.mode=apply")
    where = ("--no-prefect", "--profile", "smoke", "--cluster", CONTEXT, "--store", str(tmp_path))
    command = ("run", "--run-id", "tuned", *where, "--stages", "tuning", *knobs)
    refused = virtscale(controlled, *command)
    assert refused.returncode == 2, refused.stderr
    assert virtscale(controlled, *command, "--yes").returncode == 0
    back = virtscale(controlled, "revert", "tuned", "--yes", "--store", str(tmp_path))
    assert back.returncode == 0, back.stderr
    assert "node-netdev-max-backlog" in back.stdout + back.stderr
