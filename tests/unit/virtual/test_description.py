"""The constants of the virtual cluster: each says what, its unit and where it is from."""

import re
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.virtual.constants import constants
from infra.cluster.virtual.description import PRESETS, Description, Rate, described, load_description
from infra.errors import ProfileError

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "virtual-cluster.md"
SOURCES = (
    "assumption",
    "measured",
    "derived",
    "reference study",
    "reference implementation guide",
    "pvc-vs-snapshot-clone",
    "KubeVirt",
    "machine-config-operator",
    "HCO",
    "CDI",
    "kube-scheduler",
    "external-provisioner",
    "external-attacher",
    "kubevirt#",
    "ceph-csi#",
    "kubernetes#",
    "the one whose CRDs tests use",
)
UNITS = {"_s": "second", "_gib": "GiB", "_mib": "MiB", "_gib_per_s": "GiB per second", "_per_s": "per second"}


CONSTANTS = dict(constants(Description))


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_constant_names_its_source_or_is_an_assumption(name: str) -> None:
    what, _, source = (CONSTANTS[name].description or "").partition("; ")
    is_switch = CONSTANTS[name].annotation is bool
    assert what
    assert source.startswith(SOURCES) or (is_switch and what.startswith("whether")), source


@pytest.mark.parametrize("name", [name for name in CONSTANTS if name.endswith(tuple(UNITS))])
def test_every_quantity_says_its_unit(name: str) -> None:
    suffix = max((each for each in UNITS if name.endswith(each)), key=len)
    assert UNITS[suffix] in (CONSTANTS[name].description or "").partition("; ")[0]


def test_the_page_lists_every_constant_as_it_is() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == constant_rows(), f"write them anew: python -m {__name__}"


def constant_rows() -> list[tuple[str, str, str]]:
    """The rows of the table in docs/concepts/virtual-cluster.md."""
    return [(name, value(field.default), field.description or "") for name, field in CONSTANTS.items()]


def value(default: Any) -> str:
    if isinstance(default, Rate):
        return f"{default.qps:g} / {default.burst}"
    return {True: "on", False: "off"}[default] if isinstance(default, bool) else str(default)


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_every_preset_loads_and_says_where_it_is_from(preset: str) -> None:
    description = load_description(preset)
    assert (description.name, bool(description.source)) == (preset, True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nodes": {"worker": 3}}, "nodes.worker is not a key; did you mean nodes.workers?"),
        ({"csi": {"restore_s": -1}}, "csi.restore_s is -1; it must not be negative"),
        ({"nodes": {"workers": 0}}, "nodes.workers is 0; it must be greater than or equal to 1"),
        ({"csi": {"restore_lock": "perhaps"}}, "csi.restore_lock is 'perhaps'; it must be true or false"),
        ({"cluster": {"osds": 0}}, "cluster.osds is 0; it must be greater than or equal to 3"),
        ({"cluster": {"attach_s": -2}}, "cluster.attach_s is -2; it must not be negative"),
        ({"cluster": {"import_s": float("nan")}}, "cluster.import_s is nan; it must be a finite number"),
        ({"cluster": {"nodes": "9"}}, "cluster.nodes is '9'; it must be a whole number"),
        ({"cluster": {"node": 9}}, "cluster.node is not a key; did you mean cluster.nodes?"),
        (
            {"cluster": {"provisionr": {}}},
            "cluster.provisionr is not a key; did you mean cluster.provis",
        ),
        ({"cluster": {"kubelet": {"qbs": 1}}}, "cluster.kubelet."),
        ({"cluster": {"nic_gbit_per_s": 0}}, "cluster.nic_gbit_per_s is 0; it must be greater than 0"),
        ({"cluster": 4}, "cluster is 4; it must be a table of keys"),
        ({"clusters": {"nodes": 4}}, "clusters is not a key; did you mean cluster?"),
        ({"nodes": {"osds": 9}}, "nodes.osds is not a key; did you mean ceph.osds?"),
        (
            {"cluster": {"nodes": 4}, "nodes": {"workers": 5}},
            "cluster.nodes and nodes.workers say the same; leave one of them out",
        ),
        (
            {"assumptions": ["cluster.attach"]},
            "assumptions: cluster.attach is not a constant; did you mean cluster.attach",
        ),
    ],
)
def test_a_wrong_description_is_one_line_that_names_the_key(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as refused:
        described(values, "cluster virtual:x.toml")
    assert str(refused.value).startswith(f"cluster virtual:x.toml: {said}")
    assert "\n" not in str(refused.value)


def test_an_unknown_preset_names_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="presets are csi-lab, fast, launch-lab, study, untuned"):
        load_description("nothing")
    broken = tmp_path / "broken.toml"
    broken.write_text("[nodes\n")
    with pytest.raises(ProfileError, match="line 1"):
        load_description(str(broken))


def write_rows() -> None:
    """Put the rows into the page."""
    text = PAGE.read_text(encoding="utf-8")
    rows = "".join(f"| `{name}` | {default} | {what} |\n" for name, default, what in constant_rows())
    begin, end = "<!-- constants -->\n", "<!-- end of constants -->"
    head, _, rest = text.partition(begin)
    table = f"| constant | default | what, unit; source |\n|---|---|---|\n{rows}"
    PAGE.write_text(f"{head}{begin}{table}{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    write_rows()
