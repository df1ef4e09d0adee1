"""`virtscale roles` and the files for kustomize: as many rights as the table has, and no more."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from flows.__main__ import exit_code_of
from flows.cli.roles import roles
from flows.role_files import FOLDER, files
from tasks.profile import load_profile
from tasks.rights import STAGES, Right, rights_of
from tasks.roles import rules

Granted = set[tuple[str, str, str, str]]


def printed(*arguments: str) -> list[dict[str, Any]]:
    answer = CliRunner().invoke(roles, arguments)
    assert answer.exit_code == 0, answer.output
    return list(yaml.safe_load_all(answer.output))


def allowed(rule: dict[str, list[str]]) -> Granted:
    return {
        (verb, group, resource, name)
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def wanted(rights: list[Right]) -> Granted:
    return {(right.verb, right.kind.group, right.resource, right.name) for right in rights}


@pytest.mark.parametrize("stage", STAGES)
def test_rules_allow_what_the_table_says_and_no_more(stage: str) -> None:
    sets = ["tuning.mode=apply"]
    rights = rights_of([stage], load_profile("tuned", sets), own_namespaces=False)
    granted = [allowed(rule) for rule in rules(rights)]
    assert set().union(*granted) == wanted(rights)
    assert sum(map(len, granted)) == len(wanted(rights)), "nothing is granted twice"


def test_what_lies_in_a_namespace_is_granted_in_a_role_of_it() -> None:
    made = printed("boot", "--account", "bench/boots", "--set", "namespace=bench-vms")
    roles_in = {each["metadata"].get("namespace") for each in made if each["kind"] == "Role"}
    assert roles_in == {"bench-vms", "virtscale-golden", "kube-system", "default"}
    everywhere = next(each for each in made if each["kind"] == "ClusterRole")
    assert all("virtualmachines" not in rule["resources"] for rule in everywhere["rules"])
    subjects = [each["subjects"] for each in made if each["kind"].endswith("RoleBinding")]
    assert subjects == [[{"kind": "ServiceAccount", "name": "boots", "namespace": "bench"}]] * 5


def test_runs_that_make_their_namespaces_have_no_role_in_them() -> None:
    made = printed("golden-image", "clean", "--own-namespaces")
    names = {each["metadata"]["name"] for each in made if each["kind"] == "Namespace"}
    assert names == {"virtscale-system"}
    assert {each["metadata"].get("namespace") for each in made if each["kind"] == "Role"} == {
        "kube-system",
        "default",
    }
    everywhere = [rule for each in made if each["kind"] == "ClusterRole" for rule in each["rules"]]
    verbs = {verb for rule in everywhere if rule["resources"] == ["namespaces"] for verb in rule["verbs"]}
    assert {"create", "delete"} <= verbs


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deploy", "--account", "bench"), "'bench' is not NAMESPACE/NAME"),
        (("deployment",), "'deployment' is not one of 'preflight'"),
    ],
)
def test_a_wrong_word_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert exit_code_of(["roles", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_the_files_for_kustomize_are_those_of_the_code() -> None:
    stale = [name for name, text in files().items() if (FOLDER / name).read_text() != text]
    assert not stale, "run make docs"
