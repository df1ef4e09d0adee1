"""Run forms: what people fill in becomes what `virtscale run` would make of its options."""

import pytest

from flows.forms import (
    FORMS,
    BootStormForm,
    DeployForm,
    Form,
    GoldenImageForm,
    IoForm,
    LatencyForm,
    StudyForm,
    TuningForm,
)
from infra.errors import ProfileError
from tasks.profile import load_profile


def test_an_empty_form_is_the_study() -> None:
    request = StudyForm().request()
    assert (request.profile, request.cluster, request.run_id) == (load_profile("study"), "virtual:study", "")


def test_what_is_left_empty_is_the_profile_s() -> None:
    small = load_profile("small")
    for form in (DeployForm, BootStormForm, IoForm, LatencyForm, GoldenImageForm):
        profile = form(profile="small").request().profile
        assert profile.model_copy(update={"stages": small.stages}) == small


def test_what_is_filled_in_is_the_run_s() -> None:
    boot = (
        BootStormForm(profile="small", batches=(1, 2), rate_per_s=3.5, repeats=2, prime=True)
        .request()
        .profile
    )
    assert (boot.boot.batches, boot.boot.rate_per_s, boot.boot.repeats, boot.boot.prime) == (
        (1, 2),
        3.5,
        2,
        True,
    )
    latency = LatencyForm(profile="small", tools=("oslat",)).request().profile
    assert latency.latency.tools == ("oslat",)
    assert GoldenImageForm(url="https://x/y.qcow2").request().profile.golden_image.url == "https://x/y.qcow2"
    assert TuningForm(mode="apply").request().profile.tuning.mode == "apply"
    io = IoForm(profile="small", vms_per_node=(1, 2), cap_gib_per_s=0.5).request().profile.io
    assert (io.vms_per_node, io.cap_gib_per_s) == ((1, 2), 0.5)


def test_a_change_is_written_as_on_the_command_line() -> None:
    form = DeployForm(profile="small", batches=(1,), changes=("deploy.batches=2,3", "vm.cores=4"))
    profile = form.request().profile
    assert (profile.deploy.batches, profile.vm.cores) == ((2, 3), 4)
    with pytest.raises(ProfileError, match=r"--set boot\.nope=1"):
        DeployForm(changes=("boot.nope=1",)).request()


def test_stages_that_are_picked_are_run_in_the_order_of_a_study() -> None:
    assert StudyForm(stages=("clean", "preflight")).request().profile.stages == ("preflight", "clean")


@pytest.mark.parametrize("flow_name", FORMS)
def test_every_field_reads_well_in_the_run_form(flow_name: str) -> None:
    for field in FORMS[flow_name].model_fields.values():
        assert field.title
        assert field.description
    schema = FORMS[flow_name].model_json_schema()
    assert schema["additionalProperties"] is False


def test_limits_are_in_the_schema_where_the_server_sees_them() -> None:
    fields = Form.model_json_schema()["properties"]
    assert (fields["seed"]["minimum"], fields["seed"]["exclusiveMaximum"]) == (0, 2**32)
    assert "pattern" in fields["run_id"]
    assert "pattern" in fields["changes"]["items"]
