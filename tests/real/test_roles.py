"""Every stage under its own ServiceAccount on a real API server, judged by that server's audit log."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows import taking
from flows.approval import approval, asked_of, granted
from flows.role_files import HOME
from flows.steps import steps_of
from infra.cluster.lease import WHERE, Pace
from infra.cluster.port import Object
from infra.errors import InvalidRun
from infra.only_run import holder_of, only_run
from infra.testbed import apply, crds, servers
from infra.testbed.state import CONTEXT, State
from infra.world import World, WorldSpec, open_world
from tasks import io_vms, latency, latency_vms
from tasks.preflight import preflight
from tasks.profile import Profile
from tasks.rights import STAGES, Right, rights_of
from tasks.roles import Account, lent_namespaces, roles
from tasks.run import RunRequest
from tasks.run_manifest import new_manifest
from tasks.tuning_revert import revert
from tests.killed_run import make_leftovers
from tests.real.controlling import UNHURRIED
from tests.real.real_time_guests import played
from tests.recorded_calls import Call, unused

pytestmark = [pytest.mark.api, pytest.mark.timeout(600)]

Opened = Callable[[WorldSpec], AbstractContextManager[World]]
ON_OPENSHIFT = frozenset({"tuning", "revert"})
PROFILE = Profile.model_validate(
    {
        "name": "rights",
        "namespace": "rights-vms",
        "golden_namespace": "rights-golden",
        "deploy": {"batches": [2]},
        "boot": {"batches": [2]},
        "tuning": {"mode": "apply", "knobs": {"kubelet-max-pods": 400, "migrations-per-cluster": 26}},
        "io": {
            "nodes": 1,
            "vms_per_node": [1],
            "block_kib": [4],
            "patterns": ["read"],
            "cap_gib_per_s": 0.01,
            "directories": 1,
            "files_per_directory": 1,
            "run_s": 1,
            "ramp_s": 0,
            "baseline_s": 1,
            "pause_s": 0.1,
            "settle_s": 0.1,
            "lead_s": 0.5,
        },
        "latency": {"tools": ["jitterdebugger"], "jitter_s": 1, "segment_s": 1},
        **UNHURRIED,
    }
)
TAKEN = [stage for stage in (*PROFILE.stages, "revert") if stage not in ON_OPENSHIFT or crds.schema_folder()]
"""In the order of a run; knobs are OpenShift's."""
STUDY = Account(HOME, "virtscale-study")


def account_of(stage: str) -> Account:
    return Account(HOME, f"virtscale-{stage}")


def namespace_of(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture(scope="module")
def kubeconfigs(testbed: State, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The rights granted, and a kubeconfig for each stage's account, all with one context name."""
    lent = lent_namespaces(PROFILE)
    rights = rights_of(STAGES, PROFILE, own_namespaces=False)
    others = {right.namespace for right in rights} - {each["metadata"]["name"] for each in lent} - {""}
    apply.apply(testbed, [*lent, STUDY.home, *map(namespace_of, sorted(others))])
    apply.apply(testbed, [account.manifest for account in (STUDY, *map(account_of, STAGES))])
    for stage in STAGES:
        apply.apply(testbed, roles(stage, PROFILE, [account_of(stage), STUDY]))
    folder = tmp_path_factory.mktemp("kubeconfigs")
    accounts = {"study": STUDY} | {stage: account_of(stage) for stage in STAGES}
    return {name: logged_in(testbed, account, folder / name) for name, account in accounts.items()}


def logged_in(testbed: State, account: Account, file: Path) -> Path:
    path = f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    status, answer = apply.request(testbed, "POST", path, asked)
    assert status == 201, answer
    cluster = {"server": testbed.server, "certificate-authority": str(testbed.pki / "ca.crt")}
    user = {"token": answer["status"]["token"]}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": account.name, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": account.name}}],
    }
    file.write_text(json.dumps(document))
    return file


class Audit:
    """The API server's log of what accounts asked for, and what it was allowed."""

    def __init__(self, testbed: State) -> None:
        self._log = testbed.log(servers.AUDIT)

    def of(self, account: Account) -> tuple[set[Call], set[Call]]:
        """Requests that were allowed, and those that were refused."""
        user = f"system:serviceaccount:{account.namespace}:{account.name}"
        allowed: set[Call] = set()
        refused: set[Call] = set()
        for line in self._log.read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == user and "objectRef" in event:
                decision = event["annotations"]["authorization.k8s.io/decision"]
                (allowed if decision == "allow" else refused).add(_call(event))
        return allowed, refused


def _call(event: dict[str, Any]) -> Call:
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    return Call(
        event["verb"],
        about.get("apiGroup", ""),
        resource,
        about.get("namespace", ""),
        about.get("name", ""),
    )


@contextmanager
def acting_as(kubeconfig: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        yield


def hold_the_lease(testbed: State, request: RunRequest) -> None:
    """Made, renewed and let go."""
    lease = {"apiVersion": WHERE.kind.api_version, "kind": WHERE.kind.kind}
    apply.delete(testbed, {**lease, "metadata": {"name": WHERE.name, "namespace": WHERE.namespace}})
    with only_run(CONTEXT, holder_of(request.run_id, "nonce"), print, Pace(renew_s=0.05)):
        time.sleep(0.3)


def take(testbed: State, request: RunRequest, stage: str, opened: Opened) -> None:
    """A stage as a run takes it."""
    with open_world(request.spec()) as world:
        new_manifest(request, world)
    hold_the_lease(testbed, request)
    if stage == "preflight":
        with opened(request.spec()) as world, pytest.raises(InvalidRun, match=r"rights: .*denied"):
            world.run(preflight(world, PROFILE))
        return
    if stage == "revert":
        with opened(request.spec(stage)) as world:
            world.run(revert(world, PROFILE, granted))
        return
    if stage == "report":
        # it reads the store alone
        return
    for step in steps_of(PROFILE.model_copy(update={"stages": (stage,)})):
        taking.step_here(request, step)


@pytest.fixture(scope="module")
def opened(testbed: State) -> Iterator[Opened]:
    """Opens worlds with guests that stages can work in; the virtual controllers are at work."""
    with pytest.MonkeyPatch.context() as patch, played(testbed) as cluster:
        patch.setattr(io_vms, "PAUSE_S", 0.5)
        patch.setattr(latency_vms, "PAUSE_S", 0.5)
        patch.setattr(latency, "LOOKS_S", 1.0)

        @contextmanager
        def with_guests(spec: WorldSpec) -> Iterator[World]:
            # a boot storm ends at Running: these guests are not probed
            storm = "boot" in spec.lineage
            with open_world(spec) as world:
                yield world if storm else replace(world, guests=cluster.guests)

        patch.setattr(taking, "open_world", with_guests)
        approval.set(asked_of(granted, "a test"))
        yield with_guests


def request_of(run_id: str, folder: Path) -> RunRequest:
    return RunRequest(run_id=run_id, profile=PROFILE, cluster=CONTEXT, store=str(folder))


@pytest.fixture(scope="module")
def audited(
    testbed: State,
    kubeconfigs: dict[str, Path],
    opened: Opened,
    tmp_path_factory: pytest.TempPathFactory,
) -> Audit:
    """A whole run, each stage under its own account."""
    request = request_of("rights", tmp_path_factory.mktemp("store"))
    for stage in TAKEN:
        if stage == "clean":
            with acting_as(testbed.kubeconfig), open_world(request.spec()) as world:
                make_leftovers(world, PROFILE)
        with acting_as(kubeconfigs[stage]):
            take(testbed, request, stage, opened)
    return Audit(testbed)


def not_seen(allowed: set[Call], stage: str) -> list[Right]:
    """Rights that were not used; what a list already showed was not waited for."""
    listed = {(call.group, call.resource, call.namespace) for call in allowed if call.verb == "list"}
    return [
        right
        for right in unused(allowed, rights_of([stage], PROFILE, own_namespaces=False))
        if right.verb != "watch" or (right.kind.group, right.resource, right.namespace) not in listed
    ]


@pytest.mark.parametrize("stage", TAKEN)
def test_a_stage_is_refused_nothing_and_uses_every_right(audited: Audit, stage: str) -> None:
    allowed, refused = audited.of(account_of(stage))
    assert allowed
    assert not refused
    assert not not_seen(allowed, stage)


def test_preflight_finds_all_rights_of_a_study_granted(
    audited: Audit, opened: Opened, kubeconfigs: dict[str, Path], tmp_path: Path
) -> None:
    with acting_as(kubeconfigs["study"]), opened(request_of("study", tmp_path).spec()) as world:
        summary = world.run(preflight(world, PROFILE))
    assert summary["failed"] == summary["warnings"] == 0
    assert not audited.of(STUDY)[1]
