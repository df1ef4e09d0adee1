"""`make prove-compare`: how often `compare` cries wolf, and how often it finds a restore that is 10 % slower.

Runs the pipeline in process on the virtual cluster, compares pairs of runs as the command does, writes
docs/compare-proof.md and exits with 1 when a proof fails. With --store a stopped proof goes on, unless the
code has changed since its first run.
"""

import hashlib
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from infra.results.open import open_store
from tasks.analysis.run_comparison import RunComparison
from tasks.comparing import compare_runs
from tests.benchmarks.compare_runs import WORKERS, Plan, measured

PAGE = Path(__file__).parents[2] / "docs" / "compare-proof.md"
AA_PAIRS, SLOW_PAIRS = 200, 100
MOST_FALSE_ALARMS = 0.05
LEAST_FOUND = 0.9
SLOWER = 1.1
REPEATS = 3
DEPLOY_ONLY = ("golden-image", "deploy")
RESTORED = ("deploy end to end", "deploy p50", "deploy p99")
"""What a slower restore makes slower."""

Pair = tuple[Plan, Plan]


class Proof(NamedTuple):
    """A row of the page: of how many pairs a regression was told, and how many may (or must) be."""

    what: str
    pairs: int
    alarms: int
    asked: str
    passed: bool
    of_metrics: Counter[str]

    @property
    def share(self) -> float:
        """Pairs with an alarm."""
        return self.alarms / max(self.pairs, 1)


def aa_pairs(count: int) -> list[Pair]:
    """Pairs of seeds and nothing else, one repeat, deploys and boot storms."""
    return [(Plan(2 * i), Plan(2 * i + 1)) for i in range(1, count + 1)]


def slow_pairs(count: int) -> list[Pair]:
    """Three repeats of the deploys, the second run of another seed and with slower restores."""
    return [
        (Plan(10_000 + i, REPEATS, DEPLOY_ONLY), Plan(20_000 + i, REPEATS, DEPLOY_ONLY, SLOWER))
        for i in range(1, count + 1)
    ]


def repeated_aa_pairs(slow: Sequence[Pair]) -> list[Pair]:
    """The baselines of the slow pairs, two by two: A/A pairs with repeats that cost nothing more."""
    plans = [baseline for baseline, _ in slow]
    return list(zip(plans[::2], plans[1::2], strict=False))


def interleaved(*groups: Sequence[Pair]) -> list[Pair]:
    """All pairs, each group at its own even pace: a proof that is stopped has a share of each."""
    placed = [((i + 1) / len(group), pair) for group in groups for i, pair in enumerate(group)]
    return [pair for _, pair in sorted(placed)]


def comparison(store: Path, pair: Pair) -> RunComparison:
    """What the command would say of a pair."""
    baseline, run = ((open_store(str(store / plan.run_id)), plan.run_id) for plan in pair)
    return compare_runs(baseline, run)


def false_alarms(store: Path, pairs: Sequence[Pair], what: str) -> Proof:
    """Any regression is one too many: nothing differs but the seed."""
    found = [comparison(store, pair).regressions for pair in pairs]
    alarms = sum(bool(each) for each in found)
    asked = f"at most {MOST_FALSE_ALARMS:.0%}"
    names = Counter(name for each in found for name in each)
    return Proof(what, len(pairs), alarms, asked, alarms <= MOST_FALSE_ALARMS * len(pairs), names)


def found_slower(store: Path, pairs: Sequence[Pair], what: str) -> Proof:
    """A regression counts when it is one of those that a slower restore causes."""
    found = [set(comparison(store, pair).regressions) & set(RESTORED) for pair in pairs]
    alarms = sum(bool(each) for each in found)
    names = Counter(name for each in found for name in each)
    return Proof(
        what, len(pairs), alarms, f"at least {LEAST_FOUND:.0%}", alarms >= LEAST_FOUND * len(pairs), names
    )


def check_code(store: Path) -> None:
    """Runs of other code prove nothing about this one: a store belongs to the code that began it."""
    root, mark = Path(__file__).parents[2], store / "code.sha256"
    sources = sorted(path for folder in ("flows", "tasks", "infra") for path in (root / folder).rglob("*.py"))
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if not mark.exists():
        mark.write_text(code, encoding="utf-8")
    if mark.read_text(encoding="utf-8") != code:
        raise click.ClickException(f"{store} holds runs of other code; name another folder, or remove it")


def measure(store: Path, plans: Iterable[Plan], processes: int) -> None:
    """Run everything that the store does not have."""
    todo = list(dict.fromkeys(plans))
    spawn, began_s = multiprocessing.get_context("spawn"), time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=os.nice, initargs=(5,)) as pool:
        for done, each in enumerate(as_completed([pool.submit(measured, store, plan) for plan in todo]), 1):
            each.result()
            if done % 50 == 0 or done == len(todo):
                click.echo(f"{done} of {len(todo)} runs, {time.monotonic() - began_s:.0f} s", err=True)


def page(proofs: Sequence[Proof]) -> str:
    """docs/compare-proof.md."""
    lines = [
        f"| {each.what} | {each.pairs} | {each.alarms} | {each.share:.1%} | {each.asked} | "
        f"{', '.join(f'{name} {count}' for name, count in sorted(each.of_metrics.items())) or 'none'} | "
        f"{'holds' if each.passed else 'FAILS'} |"
        for each in proofs
    ]
    is_whole = proofs[0].pairs >= AA_PAIRS and proofs[-1].pairs >= SLOW_PAIRS
    shortened = "" if is_whole else f" **Shortened:** a whole proof has {AA_PAIRS} and {SLOW_PAIRS} pairs."
    return _PAGE.format(rows="\n".join(lines), workers=WORKERS, shortened=shortened)


_PAGE = """<!-- written by `make prove-compare` (tests/benchmarks/prove_compare.py); do not edit -->
# What `virtscale compare` can tell apart

Pairs of runs of the profile `small` (10, 20, 40 and 80 VMs) on the virtual cluster `study` with {workers}
workers, compared as the command does, at the thresholds and the confidence of the default profile. The two
runs of a pair always have different seeds. A pair raises an alarm when any of its metrics is called a
regression.{shortened}

| pairs | number | with an alarm | share | asked | metrics called regressions | |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

With one repeat the sizes are the units; with three the batches are, each compared with the batch of the same
size and repeat. The rules are in [how a number is made](concepts/how-a-number-is-made.md#comparing-two-runs).
This says nothing about a real cluster, whose runs differ by more than a seed: measure your own noise with
two runs of the same cluster before you trust a threshold.
"""


@contextmanager
def folder(given: str | None) -> Iterator[Path]:
    """The given folder, or one that is thrown away."""
    if given is not None:
        path = Path(given).resolve()
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    with TemporaryDirectory() as made:
        yield Path(made)


@click.command()
@click.option("--aa", default=AA_PAIRS, show_default=True, help="Pairs that differ by their seed only.")
@click.option("--slow", default=SLOW_PAIRS, show_default=True, help="Pairs with slower restores.")
@click.option("--store", metavar="FOLDER", help="Keep the runs here, and use those that are.")
@click.option("--processes", default=2, show_default=True, help="Runs at a time.")
@click.option(
    "--page", "path", default=str(PAGE), show_default="docs/compare-proof.md", help="File to write."
)
def main(aa: int, slow: int, store: str | None, processes: int, path: str) -> None:
    """Prove the rates of false alarms and of regressions found."""
    same, slower = aa_pairs(aa), slow_pairs(slow)
    with folder(store) as where:
        check_code(where)
        measure(where, [plan for pair in interleaved(same, slower) for plan in pair], processes)
        repeated = repeated_aa_pairs(slower)
        proofs = [
            false_alarms(where, same, "nothing differs, 1 repeat, deploys and boots"),
            false_alarms(where, repeated, f"nothing differs, {REPEATS} repeats, deploys"),
            found_slower(where, slower, f"restores {SLOWER - 1:.0%} slower, {REPEATS} repeats, deploys"),
        ]
    Path(path).write_text(page(proofs), encoding="utf-8")
    print(page(proofs))
    sys.exit(0 if all(each.passed for each in proofs) else 1)


if __name__ == "__main__":
    main()
