"""People decide in the Prefect UI: cancel, approve what tuning would change; a run waits for its cluster."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from infra.cluster.kinds import VM
from infra.cluster.lease import Pace
from infra.cluster.port import Scope, list_all
from infra.cluster.real import connect
from infra.manifests import RUN_LABEL
from infra.only_run import holder_of, only_run
from infra.results.commits import read_commits
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from tests.integration.operating import SERVED, Operation, serving, until

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("operation"),
]

KNOBS = {"kubelet-max-pods": 400, "clone-strategy": "csi-clone"}


@pytest.fixture(scope="module")
def served(operation: Operation) -> Iterator[Operation]:
    with serving(operation):
        yield operation


def vms_of(operation: Operation, run_id: str) -> int:
    """How many VirtualMachines of the run the cluster has."""

    async def count() -> int:
        cluster = await connect(SERVED, operation.environment["KUBECONFIG"])
        try:
            return len((await list_all(cluster, Scope(VM, labels=f"{RUN_LABEL}={run_id}"))).items)
        finally:
            await cluster.close()

    return asyncio.run(count())


def slots_taken(operation: Operation) -> int:
    return int(operation.ask("GET", f"/v2/concurrency_limits/{SERVED_LIMIT}")["active_slots"])


SERVED_LIMIT = f"virtscale-{SERVED}"


def test_cancel_stops_issuing_cleans_up_and_frees_the_slot_beside_a_run_of_another_cluster(
    served: Operation,
) -> None:
    beside = served.start("deploy/virtual-study", batches=[100, 200])
    run_id = served.start(f"deploy/{SERVED}", batches=[100], rate_per_s=2)
    until(lambda: vms_of(served, run_id), lambda n: n >= 5)
    assert slots_taken(served) == 1
    asked_s = rose_s = time.monotonic()
    served.ask("POST", f"/flow_runs/{run_id}/set_state", {"state": {"type": "CANCELLING"}})
    most = 0
    while (count := vms_of(served, run_id)) or not most:
        if count > most:
            most, rose_s = count, time.monotonic()
        assert time.monotonic() < asked_s + 180, "its VMs are still there"
        time.sleep(0.3)
    # `make prove-prefect` says how soon; the whole batch would have taken 50 s
    assert rose_s - asked_s < 30
    assert most < 90
    assert [served.ended(run_id), served.ended(beside)] == ["CANCELLED", "COMPLETED"]
    until(lambda: slots_taken(served), lambda taken: taken == 0)
    manifest = read_manifest(open_store(str(served.folder / "store")), run_id)
    assert manifest is not None
    assert manifest["objects_left"] is False
    first, second = served.run(run_id), served.run(beside)
    assert first["start_time"] < second["end_time"]
    assert second["start_time"] < first["end_time"]


def test_an_event_starts_the_study_once_its_automation_is_on(operation: Operation) -> None:
    (automation,) = [
        each for each in operation.ask("POST", "/automations/filter", {})
        if each["name"].endswith("study/virtual-study")
    ]  # fmt: skip
    assert automation["enabled"] is False
    operation.ask("PATCH", f"/automations/{automation['id']}", {"enabled": True})
    event = {
        "id": "5d1c1b6e-8d0a-4b7c-9a55-5a7b1d9a7f10",
        "occurred": datetime.now(UTC).isoformat(),
        "event": "virtscale.requested",
        "resource": {"prefect.resource.id": "virtscale.virtual-study"},
        "payload": {"profile": "smoke", "seed": 77},
    }
    study = operation.ask("GET", "/deployments/name/study/virtual-study")
    runs = {"deployments": {"id": {"any_": [study["id"]]}}}

    def of_event() -> list[dict[str, Any]]:
        found = operation.ask("POST", "/flow_runs/filter", runs)
        return [run for run in found if run["parameters"]["request"].get("seed") == 77]

    try:
        # the server takes a moment to know that it is on
        time.sleep(2)
        for _ in range(2):
            operation.ask("POST", "/events", [event])
        (run,) = until(of_event, bool)
    finally:
        operation.ask("PATCH", f"/automations/{automation['id']}", {"enabled": False})
    operation.ask(
        "POST", f"/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLED"}, "force": True}
    )
    assert run["parameters"]["request"]["profile"] == "smoke"
    assert run["parameters"]["request"]["cluster"] == "virtual:study"


def test_tuning_waits_for_its_cluster_asks_suspended_and_goes_on_as_it_was_answered(
    served: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", served.environment["KUBECONFIG"])
    changes = [f"tuning.knobs.{name}={json.dumps(value)}" for name, value in KNOBS.items()]
    with only_run(SERVED, holder_of("another", "nonce"), lambda _: None, Pace()):
        run_id = served.start(f"tuning/{SERVED}", mode="apply", changes=changes)
        waits = served.reaches(run_id, "AwaitingCluster")
        assert waits["type"] == "RUNNING"
        assert waits["message"].startswith(f"{SERVED} is in use by run another of ")
    until(lambda: served.run(run_id)["state"]["name"], lambda name: name != "AwaitingCluster")
    served.reaches(run_id, "Suspended")
    until(lambda: slots_taken(served), lambda taken: taken == 0)
    form = asked(served, run_id)
    assert "| kubelet-max-pods | 250 | 400 |" in form["description"]
    assert "reboots every worker" in form["description"]
    wrong = {"run_input": {"decision": "leave these knobs", "leave": ["kubelet-max-pod"]}}
    assert served.ask("POST", f"/flow_runs/{run_id}/resume", wrong)["status"] == "REJECT"
    answer = {"decision": "leave these knobs", "leave": ["kubelet-max-pods"], "by": "Ada"}
    assert served.ask("POST", f"/flow_runs/{run_id}/resume", {"run_input": answer})["status"] == "ACCEPT"
    assert served.ended(run_id) == "COMPLETED"
    store = open_store(str(served.folder / "store"))
    (tuned,) = [each for each in read_commits(store, run_id) if each.cell.stage == "tuning"]
    kept = tuned.summary["approval"]
    assert (kept["decision"], kept["by"], kept["left"]) == ("leave these knobs", "Ada", ["kubelet-max-pods"])
    in_force = tuned.summary["in_force"]
    assert (in_force["clone-strategy"], in_force["kubelet-max-pods"]) == ("csi-clone", "250")
    manifest = read_manifest(store, run_id)
    assert manifest is not None
    # the process that asked has ended, another went on
    assert len(manifest["sessions"]) == 2


def asked(operation: Operation, run_id: str) -> dict[str, Any]:
    """What the form of the suspended run says and asks."""
    keys = operation.run(run_id)["state"]["state_details"]["run_input_keyset"]
    path = f"/flow_runs/{run_id}/input"
    form: dict[str, Any] = operation.ask("GET", f"{path}/{keys['schema']}")
    assert set(form["properties"]) == {"decision", "leave", "by"}
    return {"description": operation.ask("GET", f"{path}/{keys['description']}")}
