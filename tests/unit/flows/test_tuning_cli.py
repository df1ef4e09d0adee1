"""Tuning from the command line: what is refused, and `virtscale revert`."""

import json

import pytest

from tests.unit.flows.conftest import Call

RUN = ("run", "--no-prefect", "--profile", "smoke", "--cluster", "virtual:fast")
LOOK = (*RUN, "--stages", "preflight,tuning", "--run-id", "t")

WRONG = {
    "an unknown knob": ("kubelet-max-pod=1", "kubelet-max-pod is not a knob; did you mean kubelet-max-pods?"),
    "nothing near": ("frobnicate=1", "frobnicate is not a knob; docs/reference/knobs.md lists them"),
    "a text for a number": ("kubelet-max-pods=many", "kubelet-max-pods is 'many'; it must be a whole number"),
    "a number for a switch": (
        "kubelet-serialize-image-pulls=1",
        "kubelet-serialize-image-pulls is 1; it must be true or false",
    ),
    "too little": ("kubelet-max-pods=0", "kubelet-max-pods is 0; it must be 1 or more"),
    "a switch for a number": ("kubelet-max-pods=true", "kubelet-max-pods is True; it must be a whole number"),
    "a part is missing": ("kubevirt-api-rate={qps=5}", "it must be a table of qps, burst"),
    "a part of a wrong type": (
        "kubevirt-api-rate={qps='5',burst=1}",
        "kubevirt-api-rate.qps is '5'; it must be a whole number",
    ),
    "an unknown choice": ("clone-strategy=snap", "it must be one of snapshot, csi-clone, copy"),
    "by hand": ("swap=1", "swap is set by hand"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_knob_is_one_line(virtscale: Call, text: str, said: str) -> None:
    answer = virtscale(*LOOK, "--set", f"tuning.knobs.{text}")
    assert answer.code == 2
    assert answer.err.startswith(f"error: --set tuning.knobs.{text}: tuning.knobs.")
    assert said in answer.err
    assert (answer.err.count("\n"), answer.out) == (1, "")


def test_a_revert_takes_back_what_a_run_set_once(virtscale: Call) -> None:
    assert virtscale(*LOOK, "--set", "tuning.knobs.kubelet-max-pods=400").code == 0
    answer = virtscale("revert", "t", "--json")
    knobs = {row["knob"]: (row["status"], row["effective"]) for row in json.loads(answer.out)["knobs"]}
    assert answer.code == 0
    assert knobs["kubelet-max-pods"] == ("reverted", "250")
    again = virtscale("revert", "t")
    assert (again.code, again.out) == (0, "run t: its tuning has nothing in force\n")


def test_what_cannot_be_taken_back_is_said(virtscale: Call) -> None:
    assert virtscale(*LOOK, "--set", "tuning.knobs.etcd-quota=16").code == 0
    answer = virtscale("revert", "t")
    assert answer.code == 1
    assert "etcd-quota: NOT reverted, is 16: etcd's quota cannot be lowered" in answer.out


def test_a_revert_of_no_run_is_one_line(virtscale: Call) -> None:
    answer = virtscale("revert", "nothing")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
