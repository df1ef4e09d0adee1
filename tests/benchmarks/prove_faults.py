"""`make prove-faults`: the study with every fault at once and without any, each record beside the truth.

Runs the command in process (so that the virtual cluster's truth can be read), two runs at a time, writes
docs/faults-proof.md and exits with 1 when something does not hold. With --store a stopped proof goes on.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import orjson

from flows import taking
from flows.__main__ import exit_code_of
from infra.world import World, WorldSpec
from tasks.profile import load_profile
from tests.benchmarks.faults_truth import beside_the_truth

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults-proof.md"
PLAN = ROOT / "deployments" / "faults" / "everything.toml"
CALM, STRUCK = "calm", "struck"
EXIT_CODE = {CALM: 0, STRUCK: 3}
P99_S = 1.0
"""No step of a calm batch has a wider error bound, but for its widest hundredth."""
SHOWN = 5


class Found(NamedTuple):
    """What a run came to: its exit code, and per measured batch what was recorded beside the truth."""

    run: str
    exit_code: int
    batches: list[dict[str, Any]]


def run(store: Path, name: str, seed: int, options: Sequence[str]) -> Found:
    """Take all steps of a run in this process, the truth beside each; finished steps are not done again."""
    os.environ["VIRTSCALE_PROCESSES"] = "1"
    notes, limits = store / name / "truth", load_profile("study").limits

    def opened(spec: WorldSpec) -> AbstractContextManager[World]:
        return beside_the_truth(spec, notes, limits)

    taking.open_world = opened  # type: ignore[attr-defined, assignment]
    command = ["run", "--profile", "study", "--no-prefect", "--run-id", name, "--seed", str(seed)]
    command += ["--store", str(store / name), *options]
    exit_code = exit_code_of([*command, *(["--faults", str(PLAN)] if name == STRUCK else [])])
    noted = [batch for path in sorted(notes.glob("*.json")) for batch in orjson.loads(path.read_bytes())]
    return Found(name, exit_code, noted)


def problems(found: Found) -> Iterator[str]:
    """Everything that does not hold, each in one line."""
    if found.exit_code != EXIT_CODE[found.run]:
        yield f"{found.run}: exit code {found.exit_code}, not {EXIT_CODE[found.run]}"
    for batch in found.batches:
        where = f"{found.run}: {batch['stage']} {batch['batch']:,}"
        yield from (f"{where}: {each}" for each in [*batch["wrong"][:SHOWN], *batch["faults"][:SHOWN]])
        if batch["named"] != batch["injected"]:
            yield f"{where}: named {batch['named']}, was {batch['injected']} ({batch['amounts']})"
        if found.run == CALM:
            for step, (_, p99_s, _) in batch["bounds"].items():
                if p99_s > P99_S:
                    yield f"{where}: p99 of the bound of {step} is {p99_s:.3g} s"


def page(runs: Sequence[Found], seed: int, wrong: Sequence[str], options: Sequence[str]) -> str:
    """docs/faults-proof.md."""
    shortened = f" **Shortened:** `{' '.join(options)}`." if options else ""
    told = "\n".join(f"- {each}" for each in wrong) if wrong else "Everything holds."
    return _PAGE.format(
        seed=seed,
        shortened=shortened,
        told=told,
        p99=P99_S,
        runs="\n".join(map(_run_line, runs)),
        reasons="\n".join(
            _reason_line(batch) for each in runs if each.run == STRUCK for batch in each.batches
        ),
        bounds="\n".join(_bound_lines(runs)),
    )


def _run_line(found: Found) -> str:
    records, not_ok = (sum(batch[key] for batch in found.batches) for key in ("n", "not_ok"))
    checked = sum(batch["checked"] for batch in found.batches)
    wrong = sum(len(batch["wrong"]) for batch in found.batches)
    named = sum(bool(batch["named"]) for batch in found.batches)
    within = f"{checked - wrong:,} of {checked:,}"
    return _line(found.run, found.exit_code, len(found.batches), f"{records:,}", f"{not_ok:,}", within, named)


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _reason_line(batch: dict[str, Any]) -> str:
    amounts = batch["amounts"]
    past = ", ".join(f"`{code}` {amounts[code][0]:g}" for code in batch["injected"]) or "none"
    below = ", ".join(
        f"`{code}` {found:g} of {limit:g}"
        for code, (found, limit) in amounts.items()
        if code not in batch["injected"]
    )
    equal = "yes" if batch["named"] == batch["injected"] else f"NO: {', '.join(batch['named'])}"
    where = f"{batch['stage']} {batch['batch']:,}"
    return _line(where, f"{batch['n']:,}", f"{batch['not_ok']:,}", past, below, equal)


def _bound_lines(runs: Sequence[Found]) -> Iterator[str]:
    calm, struck = (_by_step(each) for name in (CALM, STRUCK) for each in runs if each.run == name)
    for step, bounds in calm.items():
        p99_s, where = max((p99_s, where) for where, (_, p99_s, _) in bounds.items())
        n = sum(count for count, _, _ in bounds.values())
        most_s = max(most for _, _, most in bounds.values())
        of_struck = struck.get(step, {}).values()
        struck_p99_s = max((p99 for _, p99, _ in of_struck), default=0.0)
        struck_s = max((most for _, _, most in of_struck), default=0.0)
        widths = f"{most_s:.3f}", f"{struck_p99_s:.3f}", f"{struck_s:.3f}"
        yield _line(step, f"{n:,}", f"{p99_s:.3f} ({where:,})", *widths)


def _by_step(found: Found) -> dict[str, dict[int, tuple[int, float, float]]]:
    steps: dict[str, dict[int, tuple[int, float, float]]] = {}
    for batch in found.batches:
        for step, bound in batch["bounds"].items():
            steps.setdefault(f"{batch['stage']}: `{step}_s`", {})[batch["batch"]] = bound
    return steps


_PAGE = """<!-- written by `make prove-faults` (tests/benchmarks/prove_faults.py); do not edit -->
# Every fault at once, and none

Profile `study` on `virtual:study`, seed {seed}, once undisturbed and once with
[`everything.toml`](../deployments/faults/everything.toml): all stages, 100 to 6,000 VMs.{shortened}
Truth is what the virtual cluster knows of itself: its store's log, its guests, and what the fault plan did to
which request. No observer takes part in it.

{told}

| run | exit code | batches | VM records | not ok | steps within their error bound | batches with a reason |
| --- | --- | --- | --- | --- | --- | --- |
{runs}

Asked: one record for every VM of every batch; of those that are not ok the end point and its bound are null.

## Disturbances and verdicts

What really happened to each batch of the run with faults: disturbances past their threshold (`[limits]`),
those that stayed below it, and whether the verdict names the first and none of the others.

| batch | VMs | not ok | past the threshold | below it (amount of threshold) | named, and no other |
| --- | --- | --- | --- | --- | --- |
{reasons}

## Error bounds

Seconds. Asked without faults: a p99 of at most {p99:g} s for every step in every batch; the worst batch is
named.

| step | records | worst p99 of a batch | widest | with faults: worst p99 | with faults: widest |
| --- | --- | --- | --- | --- | --- |
{bounds}
"""


@contextmanager
def folder(given: str | None) -> Iterator[Path]:
    """The given folder, or one that is thrown away."""
    if given is not None:
        yield Path(given).resolve()
        return
    with TemporaryDirectory() as made:
        yield Path(made)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--seed", default=7, show_default=True, help="Seed of both runs.")
@click.option("--store", metavar="FOLDER", help="Keep the runs here, and go on with those that are.")
@click.option("--page", "path", default=str(PAGE), show_default="docs/faults-proof.md", help="File to write.")
@click.argument("options", nargs=-1)
def main(seed: int, store: str | None, path: str, options: tuple[str, ...]) -> None:
    """Prove what a study says with all faults and with none; OPTIONS go to both runs (--set, --stages)."""
    spawn = multiprocessing.get_context("spawn")
    with folder(store) as where, ProcessPoolExecutor(2, mp_context=spawn) as pool:
        runs = [*pool.map(partial(run, where, seed=seed, options=options), (STRUCK, CALM))][::-1]
    wrong = [problem for found in runs for problem in problems(found)]
    Path(path).write_text(page(runs, seed, wrong, options), encoding="utf-8")
    print(page(runs, seed, wrong, options))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
