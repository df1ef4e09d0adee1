"""Halve and double each assumption: what matters comes first, what does not is named."""

import json
import math
from pathlib import Path

import pytest

from flows.cli.sensitivity import by_effect, lines
from flows.sensitivity import Case, Sensitivity, Times, assumptions_of, scaled, small
from infra.cluster.virtual.description import described, load_description
from tasks.profile import load_profile
from tests.unit.flows.conftest import Call

STUDY = load_description("study")


def test_what_a_file_states_is_no_assumption_unless_it_says_so() -> None:
    assert "attach.attach_s" in assumptions_of(STUDY)
    stated = {"cluster": {"attach_s": 3.0}}
    assert "attach.attach_s" not in assumptions_of(described(stated, "x"))
    guessed = described({**stated, "assumptions": ["cluster.attach_s"]}, "x")
    assert "attach.attach_s" in assumptions_of(guessed)


def test_published_constants_switches_and_other_stages_are_not_varied() -> None:
    found = set(assumptions_of(STUDY))
    assert found.isdisjoint({"nodes.workers", "attach.overload", "virt.vmi_reconcile_s", "csi.delete_s"})
    assert not any(name.startswith(("ceph.", "latency.")) for name in found)


def test_a_rate_is_scaled_with_its_burst_and_one_worker_has_no_half() -> None:
    doubled = scaled(STUDY, "rates.cdi", 2.0)
    assert doubled is not None
    assert (doubled.rates.cdi.qps, doubled.rates.cdi.burst) == (400, 800)
    assert scaled(described({"csi": {"workers": 1}}, "x"), "csi.workers", 0.5) is None


def test_the_effect_is_the_largest_factor_of_any_time() -> None:
    base = {"deploy": 100.0, "boot": 10.0}
    each = Sensitivity("x", 1.0, {"deploy": 100.0, "boot": 4.0}, {"deploy": 150.0, "boot": 10.0})
    assert each.effect(base) == 2.5
    assert Sensitivity("x", 1.0, None, {"deploy": None, "boot": 10.0}).effect(base) == math.inf
    assert Sensitivity("x", 1.0, None, None).effect(base) == 1.0


def test_the_table_is_sorted_by_effect_and_names_what_has_none() -> None:
    base: Times = {"deploy": 100.0, "boot": 50.0}
    found = [
        Sensitivity("csi.bind_s", 0.01, base, base),
        Sensitivity("attach.attach_s", 2.5, {"deploy": 100.0, "boot": 40.0}, {"deploy": 100.0, "boot": None}),
        Sensitivity("csi.workers", 1, None, {"deploy": 300.0, "boot": 50.0}),
    ]
    printed = lines(Case(STUDY, small(load_profile("smoke"), 40), 7), base, by_effect(found, base))
    assert printed[0] == (
        "40 VMs on study, seed 7: deploy 1 min 40 s, boot 50.0 s; each assumption halved and doubled"
    )
    assert [line.split() for line in printed[1].splitlines()[1:]] == [
        ["attach.attach_s", "2.5", "=", "=", "-20", "%", "beyond", "the", "limit"],
        ["csi.workers", "1", "-", "+200", "%", "-", "="],
    ]
    assert printed[2] == "no effect at 40 VMs: csi.bind_s"


def test_a_slower_restore_makes_deploys_slower_and_boots_not(virtscale: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[cluster]\nnodes = 3\nrestore_s = 2.0\n")
    asked = ("plan", "--cluster", "virtual:mine.toml", "--profile", "smoke", "--sensitivity", "--size", "3")
    answer = virtscale(*asked, "--processes", "1", "--constant", "cluster.restore_s", "--json")
    found = json.loads(answer.out)
    (slower,) = found["constants"]
    assert (slower["constant"], slower["value"]) == ("csi.restore_s", 2.0)
    assert slower["doubled"]["deploy"] > 1.7 * found["base_s"]["deploy"]
    assert slower["doubled"]["boot"] == found["base_s"]["boot"]


REFUSED = {
    "a constant of no name": (("--constant", "csi.restor_s"), "did you mean csi.restore_s?"),
    "a switch": (("--constant", "limits_on"), "--constant limits_on: no quantity"),
    "no room": (("--size", "900000"), "900,000 VMs need"),
    "nothing to vary": (("--stages", "preflight"), "needs stage deploy or boot"),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_varied_is_refused_in_one_line(
    virtscale: Call, options: tuple[str, ...], said: str
) -> None:
    answer = virtscale("plan", "--sensitivity", *options)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_an_impossible_cluster_is_refused_in_one_line(virtscale: Call, tmp_path: Path, verb: str) -> None:
    (tmp_path / "mine.toml").write_text("[cluster]\nosds = 0\n")
    answer = virtscale(verb, "--cluster", "virtual:mine.toml")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "error: cluster virtual:mine.toml: cluster.osds is 0; it must be greater than or equal to 3\n"
    )


def test_golden_sources_of_the_cluster_give_way_to_the_users(virtscale: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[cluster]\nnodes = 3\ngolden_sources = 4\n")
    asked = ("plan", "--profile", "smoke", "--cluster", "virtual:mine.toml", "--json")
    assert json.loads(virtscale(*asked).out)["profile"]["golden_image"]["sources"] == 4
    own = virtscale(*asked, "--set", "golden_image.sources=2")
    assert json.loads(own.out)["profile"]["golden_image"]["sources"] == 2


def test_the_plan_says_when_the_largest_batch_does_not_fit(virtscale: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[cluster]\nnodes = 3\nmemory_gib = 16\n")
    answer = virtscale("plan", "--cluster", "virtual:mine.toml")
    assert answer.code == 0
    assert "room    too little: 6,000 VMs need 13,500 GiB of memory" in answer.out
