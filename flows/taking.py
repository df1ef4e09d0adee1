"""One step of a run in a world of its own: in this process, in one beside it, or in a Prefect task."""

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from flows.approval import approval
from flows.lanes import MEASURED
from flows.steps import Step
from flows.sure import sure
from flows.workers import workers
from infra.errors import StageError
from infra.results.commits import read_commits
from infra.results.open import open_store
from infra.results.port import Cell, Commit
from infra.results.read import last_complete
from infra.world import World, open_world
from tasks.boot_storm import boot_batch
from tasks.clean import clean
from tasks.deploy import deploy_batch
from tasks.golden_image import golden_image
from tasks.io_plan import cell_of
from tasks.io_scaling import io_step
from tasks.latency import latency_tool
from tasks.latency_plan import tool_named
from tasks.preflight import preflight
from tasks.run import RunRequest
from tasks.tuning import tuning

COMMITTED = frozenset({"preflight", "tuning", "golden-image", "deploy", "boot", "io", "latency"})
"""Stages whose commit says that they are done; the others are done again whenever they are asked for."""


def step_here(request: RunRequest, step: Step) -> dict[str, Any]:
    """Take one step in a world of its own and return its summary; a committed one is skipped."""
    if step.stage == "clean":
        return clean_copies(request)
    done = done_before(request, step)
    if done is not None:
        return {**done.summary, "skipped": True}
    if step.stage == "report":
        # Imported here: a process that only measures does without polars.
        from tasks.report_stage import write_report

        return write_report(request)
    with open_world(request.spec(step.stage)) as world:
        world.results.sure = sure.get()
        return world.run(_stage(replace(world, workers=workers.get()), request, step))


def done_before(request: RunRequest, step: Step) -> Commit | None:
    """The complete commit of a step; opening a world of thousands of VMs for this would take a second."""
    if step.stage not in COMMITTED:
        return None
    return commit_of(step, last_complete(read_commits(open_store(request.store), request.run_id)))


def commit_of(step: Step, commits: Sequence[Commit]) -> Commit | None:
    """The commit of a step among last complete ones; that of an io cell is named by the VMs of its size."""
    found = {each.cell: each for each in commits}
    per_node, _, access = step.cell.partition("-")
    if step.stage != "io" or not access:
        return found.get(Cell(step.stage, step.cell, step.repeat))
    size = found.get(Cell("io", per_node, step.repeat))
    cell = cell_of(size.summary["vms"], step.vms, access) if size else None
    return found.get(Cell("io", cell.name, step.repeat)) if cell else None


def _stage(world: World, request: RunRequest, step: Step) -> Coroutine[Any, Any, dict[str, Any]]:
    profile = request.profile
    match step.stage:
        case "preflight":
            return preflight(world, profile)
        case "tuning":
            return tuning(world, profile, approval.get())
        case "golden-image":
            return golden_image(world, profile)
        case "deploy":
            return deploy_batch(world, profile, step.vms, step.repeat)
        case "boot":
            return boot_batch(world, profile, step.vms, step.repeat)
        case "io":
            return io_step(world, profile, step.cell, step.repeat)
        case "latency":
            return latency_tool(world, profile, tool_named(step.cell))
    raise StageError(f"stage {step.stage}: this version does not run it")


def clean_copies(request: RunRequest) -> dict[str, Any]:
    """Clean the cluster; of a virtual one each copy that a measured stage has worked on.

    Raises:
        InUse: another process works on the run by now: what is there is what it measures with.
    """
    _check_ours()
    store = open_store(request.store)
    commits = read_commits(store, request.run_id)
    copies = [stage for stage in MEASURED if _is_used(commits, stage)] if request.spec().is_virtual else []
    summary: dict[str, Any] = {}
    for stage in [*copies, ""]:
        with open_world(request.spec(stage)) as world:
            cleaned_here = world.run(clean(world, request.profile, stage or "0"))
        counts = {kind: n for kind, n in cleaned_here.items() if isinstance(n, int)}
        # the preparations are the same objects in every copy
        summary |= {kind: max(n, summary.get(kind, 0)) for kind, n in counts.items()}
    return {"stage": "clean", **summary}


def _check_ours() -> None:
    """Only another process at work on the same run keeps objects from being cleaned."""
    with suppress(StageError):
        if (make_sure := sure.get()) is not None:
            make_sure()


def _is_used(commits: list[Commit], stage: str) -> bool:
    """Whether a stage has worked on its copy since that was cleaned."""
    own = [each.sequence for each in commits if each.cell.stage == stage]
    cells = (Cell("clean", "0"), Cell("clean", stage))
    return bool(own) and max(own) > max((each.sequence for each in commits if each.cell in cells), default=-1)
