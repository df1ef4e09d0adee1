"""The table of rights is what the stages call, no less and no more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows import taking
from flows.steps import steps_of
from infra.cluster.kinds import DATA_VOLUME, NAMESPACE
from infra.cluster.port import Cluster, Object, Scope
from infra.errors import InvalidRun
from infra.manifests import LENT_LABEL
from infra.world import World, WorldSpec, open_world
from tasks.clean import clean
from tasks.golden_image import golden_image
from tasks.preflight import preflight
from tasks.rights import rights_of
from tasks.roles import lent_namespaces
from tasks.run import RunRequest
from tasks.tuning_revert import revert
from tests.killed_run import make_leftovers
from tests.recorded_calls import Call, RecordedCalls, beyond, unused
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

PROFILE = profile_of(
    io={"nodes": 1, "vms_per_node": [1], "cap_gib_per_s": 0.1, "run_s": 10},
    latency={"tools": ["jitterdebugger"], "jitter_s": 20, "segment_s": 20},
    tuning={"mode": "apply", "knobs": {"kubelet-max-pods": 400, "migrations-per-cluster": 26}},
    brakes={"active": True},
)
LOOKING = set(rights_of(["report"], PROFILE, own_namespaces=False))
"""What opening a world takes: a virtual one is not asked which it is."""
Prepare = Callable[[World, str], None]


class Recorded:
    """Worlds whose clusters remember what they were asked for, by stage."""

    def __init__(self, prepare: Prepare) -> None:
        self.calls: dict[str, set[Call]] = {}
        self.stage = ""
        self._prepare = prepare

    @contextmanager
    def open(self, spec: WorldSpec) -> Iterator[World]:
        recorded = RecordedCalls(self.calls.setdefault(self.stage, set()))
        with open_world(spec) as world:
            self._prepare(world, self.stage)
            yield replace(world, cluster=recorded.through(world.cluster))


def calls_of_a_run(request: RunRequest, prepare: Prepare) -> dict[str, set[Call]]:
    """Stage to the calls that it makes in a whole run."""
    recorded = Recorded(prepare)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking, "open_world", recorded.open)
        for step in steps_of(request.profile):
            recorded.stage = step.stage
            taking.step_here(request, step)
            if step.stage == "golden-image":
                # now that its namespaces are there, what would be created is tried in them
                recorded.stage = "preflight"
                with recorded.open(request.spec()) as world:
                    world.run(preflight(world, request.profile))
    recorded.stage = "revert"
    with recorded.open(request.spec("revert")) as world:
        world.run(revert(world, request.profile, lambda _: True))
    return recorded.calls


def test_every_call_of_a_stage_is_in_the_table_and_every_right_is_used(tmp_path: Path) -> None:
    stages = tuple(each for each in PROFILE.stages if each != "report")
    profile = PROFILE.model_copy(update={"stages": stages})
    request = RunRequest(run_id="t1", profile=profile, cluster="virtual:fast", store=str(tmp_path))

    def prepare(world: World, stage: str) -> None:
        if stage == "clean":
            make_leftovers(world, profile)

    for stage, made in calls_of_a_run(request, prepare).items():
        rights = rights_of([stage], profile, own_namespaces=True)
        assert not beyond(made, rights), stage
        assert not unused(made, set(rights) - LOOKING), stage


def test_lent_namespaces_are_used_and_left(open_virtual: OpenWorld) -> None:
    profile = profile_of(stages=["golden-image", "clean"])
    with open_virtual() as world:
        for manifest in lent_namespaces(profile):
            world.run(world.cluster.create(manifest))
        recorded = RecordedCalls(set())
        watched = replace(world, cluster=recorded.through(world.cluster))
        world.run(preflight(watched, profile))
        world.run(golden_image(watched, profile))
        world.run(clean(watched, profile))
        kept = world.run(world.cluster.list(Scope(NAMESPACE, labels=f"{LENT_LABEL}=true"))).items
        left = world.run(world.cluster.list(Scope(DATA_VOLUME, profile.golden_namespace))).items
    assert {each["metadata"]["name"] for each in kept} == {profile.namespace, profile.golden_namespace}
    assert not left
    rights = rights_of(["preflight", *profile.stages], profile, own_namespaces=False)
    assert not beyond(recorded.calls, rights)


class Denying:
    """A cluster whose access reviews deny every right on one resource."""

    def __init__(self, inner: Cluster, resource: str) -> None:
        self._inner, self._resource = inner, resource

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        asked = obj.get("spec", {}).get("resourceAttributes", {})
        if asked.get("resource") == self._resource:
            return {**obj, "status": {"allowed": False}}
        return await self._inner.create(obj, dry_run=dry_run)


def test_a_right_that_is_missing_is_named_in_the_words_of_kubectl(open_virtual: OpenWorld) -> None:
    with (
        open_virtual(through=lambda inner: Denying(inner, "persistentvolumes")) as world,
        pytest.raises(InvalidRun, match=r"rights: .*denied: list persistentvolumes, watch persistentvolumes"),
    ):
        world.run(preflight(world, profile_of()))


def test_a_right_that_can_be_done_without_is_a_warning(open_virtual: OpenWorld) -> None:
    with open_virtual(through=lambda inner: Denying(inner, "resourcequotas")) as world:
        summary = world.run(preflight(world, profile_of()))
        said = {row["name"]: row for row in rows(world, "checks")}["rights"]
    assert summary["warnings"] == 1
    assert said["status"] == "warning"
    assert said["found"] == "denied, and done without: list resourcequotas in virtscale"
