"""`python -m tests.conformance_page`: docs/conformance.md from the table that the tests go by."""

from collections.abc import Sequence
from pathlib import Path

from tests.unit.virtual.deviations import CHAPTERS, LEFT_OUT, MODEL_ONLY, NOT_PLAYED, Deviation

PATH = Path(__file__).parents[1] / "docs" / "conformance.md"
DONE = {
    "imported": "the golden image is imported",
    "create_and_start": "a halted VM, its disk cloned from a snapshot elsewhere, is created, then started",
    "stop_and_delete": "a running VM is stopped, then deleted",
    "delete_running": "a running VM is deleted",
    "unschedulable": "a VM that no node has room for is started, stopped, deleted",
}
PAGE = """<!-- written by `make docs` (tests/conformance_page.py); do not edit -->
# Conformance to the real controllers

KubeVirt's and CDI's own controllers (virt-api, virt-controller, cdi-apiserver, cdi-controller of August
2026) were recorded at work on a real API server, with nodes, virt-handler and storage played by a stand-in.
What they wrote, and in which order, is compared with what the virtual controllers write, step by step:
phases, `printableStatus`, all conditions, generations, finalizers, annotations, owners, names, and the
Events with their words (`tests/unit/virtual/test_conformance.py`). Times are not compared: those of the
recordings are a stand-in's.

Everything is equal but for the tables below; a test fails when a line of them is no longer true. Stages are
also replayed over the recordings (`tests/unit/stages/test_replay.py`), over those too that the model cannot
play.

{chapters}
## Shown by the real controllers, left out by the model

{left_out}
## Shown by the model, not in that recording

{model_only}
## Recorded, not played

{not_played}"""


def page() -> str:
    """The whole page."""
    chapters = [(f"`{chapter}`", DONE[chapter]) for chapter in CHAPTERS]
    rest = [(f"`{each.recording}`", each.shows, each.why) for each in NOT_PLAYED]
    head = ("chapter", "of", "shown", "reason")
    return PAGE.format(
        chapters=table(("chapter", "what is done"), chapters),
        left_out=table(head, rows(LEFT_OUT)),
        model_only=table(head, rows(MODEL_ONLY)),
        not_played=table(("recording", "shows", "why not"), rest),
    )


def rows(deviations: Sequence[Deviation]) -> list[tuple[str, ...]]:
    """One line per deviation."""
    return [
        (f"`{each.chapter}`", each.of, "<br>".join(f"`{shown}`" for shown in each.shown), each.why)
        for each in deviations
    ]


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """As Markdown."""
    whole = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in whole)


if __name__ == "__main__":
    PATH.write_text(page())
