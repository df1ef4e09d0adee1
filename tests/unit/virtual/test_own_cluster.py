"""Table `[cluster]`: a cluster in a dozen keys, each of which stands for constants of the model."""

from pathlib import Path

import pytest

from infra.cluster.virtual.constants import constants, stated, value_of
from infra.cluster.virtual.description import Description, described, load_description
from infra.cluster.virtual.own import STANDS_FOR, OwnCluster

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deployments" / "clusters" / "examples" / "our-lab.toml"
GUIDE = ROOT / "docs" / "guides" / "describe-your-cluster.md"


def test_the_example_is_the_one_in_the_guide_and_says_what_it_seems_to() -> None:
    assert f"```toml\n{EXAMPLE.read_text()}```\n" in GUIDE.read_text()
    found = load_description(str(EXAMPLE))
    assert (found.nodes.workers, found.nodes.cpu, found.golden_sources) == (24, 64, 4)
    assert found.rates.virt_api == found.rates.virt_controller == found.rates.virt_handler
    assert (found.rates.virt_controller.qps, found.csi.restore_s, found.attach.attach_s) == (20, 1.2, 2)


@pytest.mark.parametrize("key", OwnCluster.model_fields)
def test_the_guide_names_every_key(key: str) -> None:
    assert f"| `{key}` | {OwnCluster.model_fields[key].description} |\n" in GUIDE.read_text()


def test_every_key_stands_for_constants_that_there_are() -> None:
    known = {name for name, _ in constants(Description)}
    assert {path for paths in STANDS_FOR.values() for path in paths} <= known


def test_what_is_left_out_is_as_in_the_study() -> None:
    found = described({"cluster": {"nodes": 7}}, "x")
    assert found.nodes.workers == 7
    assert found.model_copy(update={"nodes": Description().nodes}) == Description()


@pytest.mark.parametrize(
    ("own", "gib_per_s"),
    [
        ({"osds": 40, "osd_gib_per_s": 0.5}, 20.0),
        ({"osds": 40}, 10.0),
        ({"nodes": 8, "nic_gbit_per_s": 10}, 9.313),
        ({"nodes": 8, "nic_gbit_per_s": 10, "osds": 400}, 9.313),
    ],
)
def test_boots_share_the_less_of_what_osds_and_links_give(own: dict[str, float], gib_per_s: float) -> None:
    assert described({"cluster": own}, "x").guest.disk_gib_per_s == pytest.approx(gib_per_s)


def test_a_bandwidth_by_way_of_our_assumption_stays_one() -> None:
    guessed = described({"cluster": {"osds": 40}}, "x")
    known = described({"cluster": {"osds": 40, "osd_gib_per_s": 0.2}}, "x")
    assert (guessed.assumptions, known.assumptions) == (("guest.disk_gib_per_s",), ())


def test_only_what_a_file_states_is_stated() -> None:
    found = described({"cluster": {"attach_s": 3}, "kubelet": {"parallel": 4}}, "x")
    assert {"attach.attach_s", "kubelet.parallel"} == set(stated(found)) - {"assumptions"}
    assert value_of(found, "attach.attach_s") == 3


def test_osds_and_links_are_those_of_the_io_stage_too() -> None:
    found = described({"cluster": {"osds": 40, "nic_gbit_per_s": 10}}, "x")
    assert found.ceph.osds == 40
    assert found.ceph.node_gib_per_s == pytest.approx(1.164)
