"""Facts about the source itself that no linter here checks."""

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("flows", "tasks", "infra")
LINES_OF_A_MODULE = 400
LINES_OF_A_FUNCTION = 60
PARAMETERS = 5
NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "base", "misc"}
PURE = (
    "tasks.knobs",
    "tasks.profile",
    "tasks.profile_source",
    "tasks.records",
    "tasks.analysis",
    "tasks.charts",
    "tasks.report",
    "tasks.report_text",
    "tasks.tool_output",
)
BROAD = {"Exception", "BaseException"}
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:home|root|Users)/\w")
BINARY = {".parquet", ".png", ".woff2", ".gz"}
SPELLS_THE_PATTERN = Path(__file__).relative_to(ROOT).as_posix()

type_of_function = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product, by its path from the root."""
    paths = (path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(), str(path)) for path in paths}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, type_of_function):
                yield f"{path}:{node.lineno} {node.name}", node


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a caller sees: self and cls are not counted."""
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([each for each in named if each.arg not in {"self", "cls"}])


def is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(each).rpartition(".")[2] in BROAD for each in caught)


@cache
def tracked_text() -> dict[str, str]:
    """Every text file that git tracks, by its path from the root."""
    if not shutil.which("git"):
        pytest.skip("no git, so no list of tracked files")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so no list of tracked files")
    paths = (Path(name) for name in listed.stdout.split("\0") if name)
    wanted = (path for path in paths if path.suffix not in BINARY and (ROOT / path).is_file())
    return {path.as_posix(): (ROOT / path).read_text(errors="replace") for path in wanted}


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in modules()}
    assert {path: n for path, n in lengths.items() if n > LINES_OF_A_MODULE} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    lengths = {where: (node.end_lineno or node.lineno) - node.lineno + 1 for where, node in functions()}
    assert {where: n for where, n in lengths.items() if n > LINES_OF_A_FUNCTION} == {}


def test_no_function_takes_more_than_5_parameters() -> None:
    counts = {where: parameters_of(node) for where, node in functions() if not takes_its_cli_options(node)}
    assert {where: n for where, n in counts.items() if n > PARAMETERS} == {}


def takes_its_cli_options(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether click calls it: a command has one parameter for each of its options."""
    return any("command" in ast.unparse(each) for each in function.decorator_list)


def test_no_except_is_broad() -> None:
    handlers = (
        (f"{path}:{node.lineno}", node)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
    )
    assert [where for where, node in handlers if is_broad(node)] == []


def test_no_module_or_folder_has_a_name_that_says_nothing() -> None:
    named = {path: {*Path(path).parent.parts, Path(path).stem} for path in modules()}
    assert [path for path, parts in named.items() if parts & NAMES_THAT_SAY_NOTHING] == []


def reads_the_environment(node: ast.AST) -> bool:
    """Whether one variable is looked up: handing the whole environment to a child process is none."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "os.environ"
    return isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.getenv", "os.environ.get"}


def test_only_settings_reads_the_environment() -> None:
    readers = {path for path, tree in modules().items() if any(map(reads_the_environment, ast.walk(tree)))}
    assert readers - {"infra/settings.py"} == set()


def test_the_contract_of_the_pure_modules_names_each_of_them() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [each for each in linter["contracts"] if each["id"] == "pure"]
    there = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in modules()}
    assert set(contract["source_modules"]) == there.intersection(PURE)


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {(ROOT / path).parent for path in modules()}
    assert [folder.name for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_the_lock_names_no_host_and_hashes_every_requirement() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    requirements = lock.replace("\\\n", " ").splitlines()
    assert "://" not in lock
    assert [each for each in requirements if "==" in each and "--hash=sha256:" not in each] == []


def test_the_lock_has_every_requirement_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==", lock, re.MULTILINE))
    names = {re.split(r"[\[<>=!~ ;]", each)[0].lower() for each in asked}
    assert names - locked == set()


def test_no_tracked_file_names_a_folder_of_a_machine() -> None:
    found = [
        f"{path}: {line.strip()[:100]}"
        for path, text in tracked_text().items()
        if path != SPELLS_THE_PATTERN
        for line in text.splitlines()
        if MACHINE_PATH.search(line)
    ]
    assert found == []
