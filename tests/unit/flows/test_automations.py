"""Automations and the job template: the files, and what they become; no server needed."""

from typing import Any

import yaml
from prefect.utilities.templating import apply_values

from flows.automations import everywhere, of_cluster
from flows.deployments import FILE, job_template
from infra.prefect_server import HEARTBEAT_S

STUDY = "3fa85f64-5717-4562-b3fc-2c963f66afa6"


def test_a_run_is_crashed_after_missing_heartbeats_but_not_when_the_server_was_away_for_two_minutes() -> None:
    (crashed,) = everywhere()
    trigger = crashed.model_dump(mode="json")["trigger"]
    assert crashed.enabled
    # the last heartbeat before, and the first after
    assert trigger["within"] > 120 + 2 * int(HEARTBEAT_S)
    assert trigger["match_related"] == {"prefect.resource.id": "prefect.tag.virtscale"}
    # in these states nobody sends heartbeats, and nobody has to
    assert {"prefect.flow-run.Suspended", "prefect.flow-run.Cancelling"} <= set(trigger["expect"])


def test_an_event_starts_the_cluster_s_own_study_and_is_off() -> None:
    (started,) = of_cluster("my-lab", STUDY, {"cluster": "my-lab", "store": "s3://lab"})
    (action,) = started.model_dump(mode="json")["actions"]
    assert not started.enabled
    assert (action["type"], action["deployment_id"]) == ("run-deployment", STUDY)
    assert set(action["parameters"]["request"]) == {"cluster", "store", "profile", "seed"}
    assert started.name.endswith("study/my-lab")


def rendered(**given: Any) -> dict[str, Any]:
    """The Job that a worker makes with the template's defaults."""
    template = job_template("kubernetes")
    properties = template["variables"]["properties"]
    values = {name: each["default"] for name, each in properties.items() if "default" in each}
    job: dict[str, Any] = apply_values(template["job_configuration"]["job_manifest"], values | given)
    return job


def test_every_variable_of_the_job_is_described_and_no_other() -> None:
    template = job_template("kubernetes")
    used = set(template["variables"]["properties"])
    text = yaml.safe_dump(template["job_configuration"])
    assert {name for name in used if f"{{{{ {name} }}}}" not in text} == set()
    assert text.count("{{") >= len(used)


def test_a_job_runs_once_without_root_and_takes_secrets_by_reference() -> None:
    job = rendered(name="run", command=["prefect"], env=[], labels={})
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    assert pod["securityContext"]["runAsNonRoot"]
    assert {"secretRef": {"name": "virtscale", "optional": True}} in container["envFrom"]
    assert container["image"] == "virtscale:0.1.0"


def test_the_image_is_not_root_s_and_holds_what_runs_need() -> None:
    lines = FILE.with_name("Containerfile").read_text().splitlines()
    (user,) = [line for line in lines if line.startswith("USER ")]
    assert user.split()[1].partition(":")[0].isdigit()
    assert user != "USER 0"
    copied = {line.split()[1] for line in lines if line.startswith("COPY ")}
    assert {"flows", "tasks", "infra", "deployments", "requirements.lock"} <= copied
