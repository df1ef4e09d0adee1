"""Manifests of the product before a real API server: all of deployments/kustomize, and the Job of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.utilities.templating import apply_values

from flows.deployments import job_template
from infra.testbed.apply import object_path, request
from infra.testbed.state import State

pytestmark = [pytest.mark.api, pytest.mark.timeout(600)]

KUSTOMIZE = Path(__file__).parents[2] / "deployments" / "kustomize"
STRICT = "fieldManager=test&force=true&fieldValidation=Strict"


def manifests(folder: Path) -> Iterator[dict[str, Any]]:
    """Every manifest of a kustomization that only lists resources."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(listed) == {"apiVersion", "kind", "resources"}
    for name in listed["resources"]:
        if (folder / name).is_dir():
            yield from manifests(folder / name)
        else:
            yield from yaml.safe_load_all((folder / name).read_text())


def test_a_real_api_server_takes_every_manifest_and_the_job_of_a_run(testbed: State) -> None:
    found = sorted(manifests(KUSTOMIZE), key=lambda each: each["kind"] != "Namespace")
    assert {"Deployment", "Role", "ClusterRole", "ServiceAccount", "ConfigMap"} <= {m["kind"] for m in found}
    # those of OpenShift's operators are there where tuning is used
    places = {each["metadata"].get("namespace") for each in found} - {None}
    bare = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in sorted(places)]
    for manifest in [*bare, *found]:
        status, answer = request(testbed, "PATCH", f"{object_path(manifest)}?{STRICT}", manifest)
        assert status in (200, 201), (manifest["kind"], manifest["metadata"]["name"], answer)
    template = job_template("kubernetes")
    properties = template["variables"]["properties"]
    values = {name: each["default"] for name, each in properties.items() if "default" in each}
    # what Prefect gives
    values |= {
        "name": "study-one",
        "labels": {"prefect.io/flow-run-id": "1"},
        "env": [{"name": "A", "value": "b"}],
    }
    values |= {"command": ["prefect", "flow-run", "execute"]}
    job = apply_values(template["job_configuration"]["job_manifest"], values)
    path = f"/apis/batch/v1/namespaces/{job['metadata']['namespace']}/jobs?dryRun=All&fieldValidation=Strict"
    status, made = request(testbed, "POST", path, job)
    assert status == 201, made
    assert made["spec"]["backoffLimit"] == 0
    # and the namespace's strictest level of pod security finds nothing wrong with its pod
    body = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    namespace = {"apiVersion": "v1", "kind": "Namespace"} | body
    namespace["metadata"] = {"name": job["metadata"]["namespace"]} | body["metadata"]
    assert request(testbed, "PATCH", f"{object_path(namespace)}?{STRICT}", namespace)[0] == 200
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "run-"}}
    pod["spec"] = job["spec"]["template"]["spec"]
    status, refused = request(
        testbed, "POST", path.replace("/apis/batch/v1", "/api/v1").replace("/jobs", "/pods"), pod
    )
    assert status == 201, refused
