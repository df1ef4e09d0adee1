"""What a cluster's own rules deny is told in the API server's words, with the object's name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from infra.errors import InvalidRun
from infra.testbed import apply
from infra.testbed.state import CONTEXT, State
from infra.world import World, WorldSpec, open_world
from tasks.deploy import deploy_batch
from tasks.golden_image import golden_image
from tasks.preflight import preflight
from tasks.profile import Profile
from tasks.records import TABLES
from tests.real.controlling import UNHURRIED
from tests.real.manifests import virtual_machine
from tests.unit.stages.conftest import profile_of, rows

pytestmark = [pytest.mark.api, pytest.mark.timeout(600)]
RUN = "denied"
VMS = f"{RUN}-vms"
SAID = "the platform team allows no VM number 1"


def profile() -> Profile:
    deploy = {"batches": [4], "limit_s": 200}
    return profile_of(
        namespace=VMS, golden_namespace=f"{RUN}-golden", deploy=deploy, stages=["deploy"], **UNHURRIED
    )


ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")


@pytest.fixture(scope="module")
def world(controlled: State, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A run that has its golden image."""
    store = str(tmp_path_factory.mktemp("denied"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(controlled.kubeconfig))
        with open_world(WorldSpec(run_id=RUN, store=store, cluster=CONTEXT, schemas=TABLES)) as opened:
            opened.run(golden_image(opened, profile()))
            yield opened


@contextmanager
def ruled(testbed: State, name: str, expression: str) -> Iterator[None]:
    """VirtualMachines of the run have to satisfy this within the block, and no longer."""
    for manifest, plural in zip(policy(name, expression), PLURALS, strict=True):
        status, answer = apply.request(testbed, "POST", f"{ADMISSION}/{plural}", manifest)
        assert status == 201, answer
    forbidden = virtual_machine("tried", VMS)
    forbidden["metadata"]["labels"] = {"virtscale.io/index": "1"}
    path = f"/apis/kubevirt.io/v1/namespaces/{VMS}/virtualmachines?dryRun=All"

    def is_in_force() -> bool:
        return f"'{name}'" in str(apply.request(testbed, "POST", path, forbidden)[1])

    try:
        apply.wait_until(is_in_force, "the policy is not in force")
        yield
    finally:
        for plural in PLURALS:
            apply.request(testbed, "DELETE", f"{ADMISSION}/{plural}/{name}")
        apply.wait_until(lambda: not is_in_force(), "the policy is still in force")


@contextmanager
def quota(testbed: State, vms: int) -> Iterator[None]:
    """So many VirtualMachines in the run's namespace; nobody here counts for the API server but itself."""
    hard = {"count/virtualmachines.kubevirt.io": str(vms)}
    meta = {"name": "few", "namespace": VMS}
    manifest = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
    apply.apply(testbed, [manifest])
    used = dict.fromkeys(hard, "0")
    apply.apply_status(testbed, {**manifest, "status": {"hard": hard, "used": used}})
    yield
    apply.delete(testbed, manifest)


def policy(name: str, expression: str) -> list[dict[str, Any]]:
    """A ValidatingAdmissionPolicy on VirtualMachines, and its binding."""
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {
        "apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["virtualmachines"],
    }  # fmt: skip
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": SAID}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {**group, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    ]


NO_SECOND = "object.metadata.?labels[?'virtscale.io/index'].orValue('') != '1'"
NONE_AT_ALL = "false"


def test_vms_that_rules_of_the_cluster_deny_fail_in_the_servers_words(
    world: World, controlled: State
) -> None:
    with quota(controlled, 2 + 1), ruled(controlled, "no-second-vm", NO_SECOND):
        world.run(deploy_batch(world, profile(), 4))
    vms = {row["vm"]: row for row in rows(world, "vm_deploys")}
    assert len(vms) == 4
    failed = {name: row["detail"] for name, row in vms.items() if row["state"] != "ok"}
    by_policy = failed.pop(f"{RUN}-d4-0001")
    assert f"create VirtualMachine {RUN}-d4-0001: 422 " in by_policy
    assert (
        f"ValidatingAdmissionPolicy 'no-second-vm' with binding 'no-second-vm' denied request: {SAID}"
        in by_policy
    )
    assert all("is forbidden: exceeded quota: few" in detail for detail in failed.values())
    assert all(f"create VirtualMachine {name}: 403 " in detail for name, detail in failed.items())
    (batch,) = (row for row in rows(world, "batches") if row["stage"] == "deploy")
    assert [reason.partition(":")[0] for reason in batch["reasons"]] == ["vm_not_ok"], (
        "nobody's login expired"
    )


def test_a_name_that_somebody_else_took_first_fails_and_theirs_is_not_touched(
    world: World, controlled: State
) -> None:
    theirs = virtual_machine(f"{RUN}-d2-0001", VMS)
    apply.apply(controlled, [theirs])
    path = apply.object_path(theirs)
    _, before = apply.request(controlled, "GET", path)
    world.run(deploy_batch(world, profile(), 2))
    ours, taken = sorted(
        (row for row in rows(world, "vm_deploys") if row["batch"] == 2), key=lambda r: r["vm"]
    )
    assert (ours["state"], taken["vm"], taken["state"]) == ("ok", f"{RUN}-d2-0001", "failed")
    assert "already exists" in taken["detail"]
    _, after = apply.request(controlled, "GET", path)
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert "deletionTimestamp" not in after["metadata"]


def test_preflight_refuses_what_a_policy_denies_in_its_words(world: World, controlled: State) -> None:
    with ruled(controlled, "no-vm", NONE_AT_ALL), pytest.raises(InvalidRun) as refused:
        world.run(preflight(world, profile()))
    assert str(refused.value).startswith(
        "cluster testbed: dry run of VirtualMachine: accepted, create Virtual"
    )
    assert str(refused.value).count(SAID) == 1
