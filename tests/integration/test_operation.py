"""Prefect in operation: `virtscale prefect up`, deployments, a worker; Retry redoes what failed.

And what people decide in the UI: cancel, approve what tuning would change; a run waits for its cluster.
"""

import asyncio
import json
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

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
]

KNOBS = {"kubelet-max-pods": 400, "clone-strategy": "csi-clone"}
AWAY = """
[[fault]]
kind = "api-away"
stage = "deploy"
batch = 2
attempt = 1
at_s = 0.1
for_s = 100000
"""
STAGES = ["preflight", "golden-image", "deploy", "boot", "report", "clean"]


def test_up_says_that_all_is_healthy_and_where_the_ui_is(operation: Operation) -> None:
    lines = dict(
        line.split(None, 1) for line in operation.said.splitlines() if not line.startswith("created")
    )
    assert lines["healthy"] == "server, worker, receiver"
    assert lines["ui"] == operation.url.removesuffix("/api")
    assert operation.said.count("created ") == 13
    secret = operation.folder / "state" / "prefect" / "webhook.secret"
    assert secret.stat().st_mode & 0o777 == 0o600


def test_applying_again_changes_nothing_and_mends_what_was_changed(operation: Operation) -> None:
    again = operation.virtscale("prefect", "apply")
    assert again.stdout == "unchanged: 9 deployments of virtual:study\n", again.stderr
    found = operation.ask("GET", "/deployments/name/deploy/virtual-study")
    operation.ask("DELETE", f"/deployments/{found['id']}")
    study = operation.ask("GET", "/deployments/name/study/virtual-study")
    operation.ask("PATCH", f"/deployments/{study['id']}", {"description": "x", "tags": ["x"]})
    (schedule,) = study["schedules"]
    on = f"/deployments/{study['id']}/schedules/{schedule['id']}"
    operation.ask("PATCH", on, {"active": True})
    request = {"cluster": "virtual:study", "seed": "one"}
    wrong = {
        "slug": "hourly",
        "active": False,
        "schedule": {"interval": 3600},
        "parameters": {"request": request},
    }
    (hourly,) = operation.ask("POST", f"/deployments/{study['id']}/schedules", [wrong])
    mended = operation.virtscale("prefect", "apply").stdout.splitlines()
    assert "created deploy/virtual-study" in mended
    # With one of its deployments the server deletes the slot of all.
    assert "created limit virtscale-virtual-study: 1 run at a time" in mended
    assert "changed study/virtual-study: description, tags, limit" in mended
    assert mended[-1] == (
        "refused schedule hourly of study/virtual-study: Validation failed for field 'request.seed'."
        " Failure reason: 'one' is not of type 'integer'; correct it in the UI, or its runs fail"
    )
    operation.ask("DELETE", f"/deployments/{study['id']}/schedules/{hourly['id']}")
    after = operation.ask("GET", "/deployments/name/study/virtual-study")
    assert [each["active"] for each in after["schedules"]] == [True]
    operation.ask("PATCH", on, {"active": False})
    assert operation.virtscale("prefect", "apply").stdout.startswith("unchanged")


def test_the_server_refuses_what_the_form_does_not_allow(operation: Operation) -> None:
    for request in ({"seed": "1"}, {"cluster": "another"}, {"sead": 1}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            operation.start("study/virtual-study", **request)
        with refused.value as answer:
            assert answer.code == 409
            assert "request" in json.load(answer)["detail"]
    study = operation.ask("GET", "/deployments/name/study/virtual-study")
    asked = {"parameters": study["parameters"] | {"another": 1}}
    with pytest.raises(urllib.error.HTTPError, match="409"):
        operation.ask("POST", f"/deployments/{study['id']}/create_flow_run", asked)


def test_retry_redoes_the_failed_batch_and_nothing_before_it(operation: Operation) -> None:
    faults = operation.folder / "away.toml"
    faults.write_text(AWAY)
    run_id = operation.start("study/virtual-study", faults=str(faults), stages=STAGES)
    assert operation.ended(run_id) == "FAILED"
    first = operation.tasks(run_id, 4)
    before = [(name, "Completed") for name in ("preflight", "golden image", "deploy 1")]
    assert first == [*before, ("deploy 2", "Failed")]
    # A hook of the failed run may still be about; whoever presses Retry takes a moment, too.
    time.sleep(5)
    retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
    assert operation.ask("POST", f"/flow_runs/{run_id}/set_state", retry)["status"] == "ACCEPT"
    until(lambda: operation.run(run_id)["run_count"], lambda count: count == 2)
    assert operation.ended(run_id) == "COMPLETED"
    again = operation.tasks(run_id, len(first) + 10)[len(first) :]
    assert again[:3] == [("preflight", "Cached"), ("golden image", "Cached"), ("deploy 1", "Cached")]
    assert {state for _, state in again[3:]} == {"Completed"}
    assert [name for name, _ in again[3:]][:2] == ["deploy 2", "deploy 4"]
    commits = read_commits(open_store(str(operation.folder / "store")), run_id)
    done = Counter(f"{each.cell.stage} {each.cell.cell}" for each in commits if each.complete)
    assert (done["deploy 1"], done["deploy 2"], done["deploy 4"], done["preflight 0"]) == (1, 1, 1, 1)
    attempts = {
        each.cell.cell: each.attempt for each in commits if each.cell.stage == "deploy" and each.complete
    }
    assert attempts == {"1": 1, "2": 2, "4": 1}


class Pair(NamedTuple):
    """Two runs of one cluster that were started at the same time."""

    deploy: str
    boot: str


@pytest.fixture(scope="module")
def pair(operation: Operation) -> Pair:
    deploy = operation.start("deploy/virtual-study", batches=[1, 3])
    boot = operation.start("boot storm/virtual-study", batches=[1])
    assert [operation.ended(deploy), operation.ended(boot)] == ["COMPLETED", "COMPLETED"]
    return Pair(deploy, boot)


def test_a_run_shows_progress_a_table_per_batch_and_a_summary(operation: Operation, pair: Pair) -> None:
    found = operation.ask("POST", "/artifacts/filter", {"flow_runs": {"id": {"any_": [pair.deploy]}}})
    artifacts = {each["key"]: each["data"] for each in found if each["key"]}
    assert set(artifacts) == {"progress", "deploy-1", "deploy-3", "summary"}
    assert artifacts["progress"] == 100
    (deploy, delete) = json.loads(artifacts["deploy-3"])
    assert (deploy["stage"], deploy["VMs"], deploy["ok"], deploy["verdict"]) == ("deploy", "3", "3", "valid")
    assert delete["stage"] == "delete"
    assert f"# Run {pair.deploy}" in artifacts["summary"]
    assert f"{pair.deploy}/report.html" in artifacts["summary"]


def test_of_two_runs_on_one_cluster_the_second_waits(operation: Operation, pair: Pair) -> None:
    spans = sorted((run["start_time"], run["end_time"]) for run in map(operation.run, pair))
    assert spans[0][1] <= spans[1][0]


def test_down_refuses_while_a_run_is_active(operation: Operation) -> None:
    """Prefect is told that a run of tomorrow runs already: no process is needed for the question."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": tomorrow}}
    study = operation.ask("GET", "/deployments/name/study/virtual-study")
    run = operation.ask("POST", f"/deployments/{study['id']}/create_flow_run", {"state": later})
    states = f"/flow_runs/{run['id']}/set_state"
    operation.ask("POST", states, {"state": {"type": "RUNNING"}, "force": True})
    refused = operation.virtscale("prefect", "down")
    operation.ask("POST", states, {"state": {"type": "CANCELLED"}, "force": True})
    assert refused.returncode == 2
    assert "1 active" in refused.stderr


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
