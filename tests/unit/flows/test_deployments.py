"""Deployments: the file, and what it becomes for a cluster; no server needed."""

from pathlib import Path

import pytest

from flows.deployments import Place, described, limit_of, name_of, wanted
from flows.forms import FORMS
from infra.errors import ProfileError


def test_there_is_a_deployment_for_every_form() -> None:
    listed = [wanted(each, Place()) for each in described()]
    assert sorted(each.flow_name for each in listed) == sorted(FORMS)
    assert all(each.body["description"] and "virtscale" in each.body["tags"] for each in listed)


def test_every_deployment_but_the_report_s_takes_the_cluster_s_slot() -> None:
    assert [each.entrypoint for each in described() if not each.concurrency_limit] == ["flows.report.report"]


def test_schedules_are_off() -> None:
    schedules = [schedule for each in described() for schedule in each.schedules]
    assert [schedule["slug"] for schedule in schedules] == ["weekly"]
    assert not any(schedule["active"] for schedule in schedules)


def test_a_deployment_measures_its_own_cluster_and_no_other() -> None:
    for each in (wanted(each, Place("my-lab", "s3://results/lab")) for each in described()):
        schema = each.body["parameter_openapi_schema"]
        (form,) = [found for found in schema["definitions"].values() if "run_id" in found["properties"]]
        assert form["properties"]["store"]["default"] == "s3://results/lab"
        if "cluster" in form["properties"]:
            assert form["properties"]["cluster"]["enum"] == ["my-lab"]
            assert "cluster" in form["required"]
            assert each.body["parameters"]["request"]["cluster"] == "my-lab"


@pytest.mark.parametrize(
    ("cluster", "name"),
    [
        ("virtual:study", "virtual-study"),
        ("my-lab", "my-lab"),
        ("virtual-study", "virtual-study-6c0948"),
        ("default/api-lab:6443/admin", "default-api-lab-6443-admin-"),
    ],
)
def test_two_clusters_never_share_a_name(cluster: str, name: str) -> None:
    assert name_of(cluster).startswith(name)
    assert limit_of(cluster) == f"virtscale-{name_of(cluster)}"


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "prefect.yaml"
    path.write_text("deployments: [{name: x}]")
    with pytest.raises(ProfileError, match=r"prefect\.yaml: .*entrypoint") as refused:
        described(path)
    assert "\n" not in str(refused.value)
