"""docs/performance.md names commands that exist, and the benchmarks behind it measure what they say."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from infra.errors import StoreError
from infra.results.open import open_store
from tests.benchmarks import bench_api, bench_job, bench_loop, bench_results, bench_store
from tests.benchmarks.bench_figures import Figure, against_target, in_turns

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
MODULE = re.compile(r"python -m (tests\.[\w.]+)([^`\n]*)")
ROW = re.compile(r"^\| (?!-|what )(.*) \|$", re.MULTILINE)
COLUMNS = 6


def command_of(module: str) -> click.Command:
    found = importlib.import_module(module).main
    assert isinstance(found, click.Command)
    return found


@pytest.mark.parametrize(("module", "words"), sorted(set(MODULE.findall(PAGE))))
def test_every_benchmark_command_of_the_page_is_accepted(module: str, words: str) -> None:
    words = words.replace("FOLDER", "folder").replace("KUBECONFIG", "Makefile").replace("RUN", "run")
    command_of(module).make_context(module, shlex.split(words)).close()


def test_every_figure_of_the_page_has_a_command_a_date_and_a_machine() -> None:
    rows = [row.split(" | ") for row in ROW.findall(PAGE)]
    assert rows
    assert [row for row in rows if len(row) != COLUMNS or not all(cell.strip() for cell in row)] == []


def test_a_figure_holds_up_to_its_limit() -> None:
    assert against_target("report", 5.0, "s", 5.0, "n 1").holds
    assert not against_target("report", 5.1, "s", 5.0, "n 1").holds
    assert Figure("results", 9.0, "ms", 1.0, "plain", "n 1").holds
    assert "ratio 9.00 | n 1" in str(Figure("results", 9.0, "ms", 1.0, "plain", "n 1"))


def test_contenders_take_turns() -> None:
    turns: list[str] = []

    def turn(name: str, cost: float) -> float:
        turns.append(name)
        return cost

    assert in_turns(lambda: turn("A", 1.0), lambda: turn("B", 2.0), 2) == ([1.0, 1.0], [2.0, 2.0])
    assert turns == ["A", "B", "A", "B"]


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        bench_job.cost_of([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_cost_of_a_command_is_its_own() -> None:
    cost = bench_job.cost_of([sys.executable, "-c", "print('said')"])
    assert cost.output == "said\n"
    assert 0 < cost.cpu_s < cost.wall_s + 1
    # smaller than this process, so not to be told from it
    assert cost.rss_mib is None


def test_a_run_without_saved_state_has_no_writes_to_count(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no state of a virtual cluster"):
        bench_job.simulated_writes(open_store(str(tmp_path)), "none")


def test_the_small_benchmarks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_loop, "TASKS", 3)
    monkeypatch.setattr(bench_store, "WRITES", 30)
    monkeypatch.setattr(bench_results, "ROWS", 60)
    for module in (bench_loop, bench_store, bench_results):
        monkeypatch.setattr(module, "ROUNDS", 1)
    figures = [
        *bench_loop.loop_figures(),
        *bench_store.store_figures(),
        *bench_results.results_figures(),
    ]
    assert len(figures) == 5
    assert all(figure.ours > 0 and figure.peer > 0 for figure in figures)


def test_the_contenders_on_an_api_server_are_programs() -> None:
    for module in (bench_api.OURS, bench_api.MINIMAL):
        assert importlib.util.find_spec(module) is not None
