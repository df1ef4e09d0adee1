"""Proof: damaged output of a guest's tool is an error with a position, or still the right number.

`make prove-parsers` damages each sample file 10,000 times (seeded) and parses it. It exits 1 after a
crash, a parse of more than `SLOWEST_S`, or a figure that is written twice and came out wrong. Figures
that a file says only once cannot be checked by any parser; how often they moved is printed.
"""

import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from infra.errors import ToolOutputError
from tests.unit.tool_output.cases import CASES, Case, data
from tests.unit.tool_output.figures import figures, moved, wrong
from tests.unit.tool_output.mutations import mutated

SLOWEST_S = 2.0
MUTATIONS = 10_000
DAMAGED_CONSOLE_EVERY = 10


class Proof(NamedTuple):
    """Outcomes of one file's mutations: counts by outcome, figures moved, failures, slowest parse."""

    file: str
    outcomes: Counter[str]
    moved: Counter[str]
    failures: list[str]
    slowest_s: float


def damaged(case: Case, i: int) -> tuple[bytes, bytes]:
    """The i-th damage to a case: to its file, sometimes to its console."""
    written, console = data(case.file), data(case.console) if case.console else b""
    if console and i % DAMAGED_CONSOLE_EVERY == 0:
        return written, mutated(f"{case.file} console {i}", console)
    return mutated(f"{case.file} {i}", written), console


def prove(case: Case, mutations: int) -> Proof:
    """Damage one file so many times and look at each outcome."""
    whole = case.read()
    before, outcomes, shifted, failures, slowest = figures(whole), Counter[str](), Counter[str](), [], 0.0
    for i in range(mutations):
        body, console = damaged(case, i)
        began = time.perf_counter()
        signal.alarm(30)
        try:
            run = case.parse(body, console=console)
        except ToolOutputError as error:
            outcomes["refused"] += 1
            if not error.position or "\n" in str(error):
                failures.append(f"{case.file} mutation {i}: no position, or not one line: {error!r}")
            continue
        except Exception as error:  # noqa: BLE001 - that there is none is what is proven
            failures.append(f"{case.file} mutation {i}: {error!r}")
            continue
        finally:
            signal.alarm(0)
            slowest = max(slowest, time.perf_counter() - began)
        after = figures(run)
        outcomes["equal" if run == whole else "same figures" if after == before else "moved"] += 1
        shifted.update(moved(before, after))
        failures += [f"{case.file} mutation {i}: {each}" for each in wrong(before, after)]
    if slowest > SLOWEST_S:
        failures.append(f"{case.file}: a parse took {slowest:.1f} s")
    return Proof(case.file, outcomes, shifted, failures, slowest)


def proofs(mutations: int, part_of_name: str) -> Iterator[Proof]:
    """One proof per file with such a name, on all cores."""
    numbers = [i for i, case in enumerate(CASES) if part_of_name in case.file]
    with ProcessPoolExecutor() as pool:
        yield from pool.map(prove_by_number, numbers, [mutations] * len(numbers))


def prove_by_number(number: int, mutations: int) -> Proof:
    """Cases hold functions that do not travel between processes; their numbers do."""
    return prove(CASES[number], mutations)


def main() -> int:
    mutations = int(sys.argv[1]) if len(sys.argv) > 1 else MUTATIONS
    part_of_name = sys.argv[2] if len(sys.argv) > 2 else ""
    failed, files, sums = 0, 0, Counter[str]()
    for proof in proofs(mutations, part_of_name):
        counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(proof.outcomes.items()))
        print(f"{proof.file}: {counts}; slowest {proof.slowest_s * 1000:.0f} ms")
        for name, n in proof.moved.most_common(4):
            print(f"    moved within what nothing confirms: {name} {n} times")
        for failure in proof.failures[:10]:
            print(f"    FAILED {failure}")
        sys.stdout.flush()
        failed, files = failed + len(proof.failures), files + 1
        sums.update(proof.outcomes)
    print(f"{sum(sums.values())} mutations of {files} files: {dict(sums)}; {failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
