"""A run from its first step to its last, the same with Prefect and without.

`conduct` reads as the procedure: write down what is asked, take the steps in order, clean up whatever
happens, write down how it ended. A step opens a world of its own, so it can be taken alone, later,
or in another process; what is committed already is not done again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

import click

from flows.cost import peak_rss_mib
from flows.interrupts import interrupts
from flows.lanes import Leg, legs_of, processes_for
from flows.one_run import one_run
from flows.outcome import Outcome, Session, outcome_of
from flows.progress import progress
from flows.side_by_side import SideBySide, StepRunner, side_by_side
from flows.steps import Step, steps_of
from flows.taking import commit_of, step_here
from infra.errors import InUse, InvalidRun, ProfileError, StageError, StateLost, StoreError, VirtscaleError
from infra.results.commits import read_commits, run_folders
from infra.results.lock import only_process
from infra.results.manifest import read_manifest, write_first_manifest, write_manifest
from infra.results.open import made_spool_folder, open_store
from infra.results.port import Cell, ObjectStore
from infra.results.read import check_parts, last_complete
from infra.results.room import check_room
from infra.results.summaries import write_summaries
from infra.results.uploads import upload_cost, uploading
from infra.settings import processes
from infra.world import open_world
from tasks.records import TABLES
from tasks.run import RunRequest
from tasks.run_manifest import Manifest, check_same_run, comparability, new_manifest, now

CLEAN = Step("clean", label="clean")

_TELLING = Lock()


def run_step(request: RunRequest, step: Step) -> dict[str, Any]:
    """Take one step where this thread's steps are taken: here, or in a process beside this one."""
    return _where.get()(request, step)


_where: ContextVar[StepRunner] = ContextVar("where steps are taken", default=step_here)


def conduct(request: RunRequest, run: StepRunner = run_step) -> Outcome:
    """Do everything that the profile's stages ask for.

    Raises:
        VirtscaleError: refused (exit code 2) or a stage could not finish (exit code 1).
        KeyboardInterrupt: interrupted; objects of the run are gone unless it was interrupted twice.
    """
    store, folders = open_store(request.store), run_folders(request.run_id, TABLES)
    uploads = uploading(store, request.run_id, folders, tell, virtual_time=request.spec().is_virtual)
    with only_process(store, request.run_id), uploads as store:
        manifest = begin(store, request)
        with one_run(request, store) as still_alone, recorded(store, newest(store, manifest)) as session:
            session.still_alone = still_alone
            legs = legs_of(steps_to_take(request))
            # Around all steps: an interrupt may come between two of them.
            with (
                side_by_side(processes_beside(request, legs), step_here, store) as beside,
                cleaned_up(request, session),
            ):
                for leg in legs:
                    walk(request, session, leg, Way(run, beside))
        if "tuning" in request.profile.stages:
            manifest["comparability"] = as_tuned(request)
        return finish(store, manifest)


def tell(line: str) -> None:
    """One more line of progress."""
    click.echo(line, err=True)


def begin(store: ObjectStore, request: RunRequest) -> Manifest:
    """The manifest of the run: written now, or found and equal in everything that matters.

    A run that has completed nothing yet (preflight refused it) may still be corrected.

    Raises:
        ProfileError: the run id belongs to another profile, cluster, seed or faults file.
        InUse: another process has begun a run of this id meanwhile.
        StoreError: the manifest of a run that has begun is gone, or the rows of the largest batch would not
            fit on this machine.
    """
    found = read_manifest(store, request.run_id)
    if has_begun(store, request.run_id):
        if found is None:
            raise StoreError(
                f"store {store.address('')}: run {request.run_id} has results but no manifest to say what "
                "they are of; put it back, or choose another --run-id"
            )
        check_same_run(found, request)
        return found
    cells = [Cell(step.stage, step.cell) for step in steps_of(request.profile)]
    check_room(made_spool_folder(store, request.run_id), cells)
    with refused(), open_world(request.spec()) as world:
        manifest = new_manifest(request, world)
    if found is None:
        write_first_manifest(store, request.run_id, manifest)
        return manifest
    manifest |= {key: found[key] for key in ("sessions", "objects_left")}
    write_manifest(store, request.run_id, manifest)
    return manifest


def newest(store: ObjectStore, manifest: Manifest) -> Manifest:
    """The same manifest with what another machine wrote into it while this one waited for the cluster."""
    manifest |= read_manifest(store, manifest["run_id"]) or {}
    return manifest


def as_tuned(request: RunRequest) -> dict[str, Any]:
    """The comparability keys once more: when the run began, its tuning was not in force."""
    with open_world(request.spec()) as world:
        return comparability(request, world)


def has_begun(store: ObjectStore, run_id: str) -> bool:
    """Whether something of the run is complete: from then on its id stands for its profile."""
    return any(commit.complete for commit in read_commits(store, run_id))


@contextmanager
def refused() -> Iterator[None]:
    """Whatever goes wrong before anything was changed is a refusal: exit code 2.

    Raises:
        VirtscaleError: the same words.
    """
    try:
        yield
    except VirtscaleError as error:
        if error.exit_code == InvalidRun.exit_code:
            raise
        raise InvalidRun(str(error)) from error


def steps_to_take(request: RunRequest) -> list[Step]:
    """The steps of the run; what has to be kept is not cleaned."""
    steps = steps_of(request.profile, request.run_id)
    return [step for step in steps if not (request.keep and step.stage == "clean")]


class Way(NamedTuple):
    """How steps are taken: by whom (Prefect or plainly), and beside this process or not (None)."""

    run: StepRunner
    beside: SideBySide | None


def processes_beside(request: RunRequest, legs: list[Leg]) -> int:
    """How many processes take steps beside this one: only copies of a virtual cluster bear that."""
    return processes_for(legs, processes()) if request.spec().is_virtual else 0


def walk(request: RunRequest, session: Session, leg: Leg, way: Way) -> None:
    """Take the steps of a leg: one by one, or its lanes side by side."""
    run, beside = way
    if beside is None or len(leg) == 1:
        for step in (step for lane in leg for step in lane):
            session.at = step
            take(request, session, step, run)
        return

    def take_there(step: Step, where: StepRunner) -> None:
        _where.set(where)
        take(request, session, step, run)

    try:
        beside.walk(leg, take_there)
    finally:
        session.at = beside.at or leg[-1][0]
        session.held_mib(peak_rss_mib() + beside.peak_rss_mib)


def take(request: RunRequest, session: Session, step: Step, run: StepRunner) -> None:
    """Take one step, and tell who listens; only cleaning minds nobody else on the cluster."""
    if step.stage != "clean":
        session.still_alone()
    listener = progress.get()
    with _TELLING:
        listener.started(step)
        session.begun(step)
    summary = run(request, step)
    with _TELLING:
        session.done(step)
        listener.finished(step, summary)


@contextmanager
def cleaned_up(request: RunRequest, session: Session) -> Iterator[None]:
    """Whatever ends the steps early, the run's objects leave the cluster, unless they are to be kept.

    They stay, too, when another process is at work on the run: it measures with them.
    """
    with interrupts() as count:
        try:
            yield
        except (InvalidRun, ProfileError, StateLost):
            raise
        except (KeyboardInterrupt, VirtscaleError) as error:
            step = session.at
            if step is None:
                raise
            session.was_displaced = isinstance(error, InUse)
            if not (isinstance(error, InUse) or request.keep or step.stage == "clean" or count() > 1):
                clean_after(request, session, step, error)
            if isinstance(error, VirtscaleError) and step.stage != "preflight" and not _names(error, step):
                raise StageError(f"{step.label}: {error}") from error
            raise


def _names(error: VirtscaleError, step: Step) -> bool:
    """Whether an error of a stage says itself in which step it happened."""
    return error.exit_code == StageError.exit_code and str(error).startswith(f"{step.label}: ")


def clean_after(
    request: RunRequest, session: Session, step: Step, error: KeyboardInterrupt | VirtscaleError
) -> None:
    """Clean after a step that ended with `error`, which stays what is said when cleaning fails, too.

    Raises:
        StageError: cleaning failed after an error.
        KeyboardInterrupt: cleaning failed after an interrupt.
    """
    try:
        take(request, session, CLEAN, run_step)
    except VirtscaleError as failed:
        if isinstance(error, KeyboardInterrupt):
            raise error from failed
        raise StageError(f"{step.label}: {error}; nor could it be cleaned up: {failed}") from error


@contextmanager
def recorded(store: ObjectStore, manifest: Manifest) -> Iterator[Session]:
    """Add to the manifest what this process does for the run, however it ends.

    Until then the manifest says that objects are left: a reader has to know if this process is killed.
    Where another process took the run over, what that one wrote stays.
    """
    session, left_before = Session(), manifest["objects_left"]
    manifest |= {"finished_at": None, "objects_left": True}
    write_manifest(store, manifest["run_id"], manifest)
    try:
        yield session
    except (InvalidRun, ProfileError) as error:
        if not has_begun(store, manifest["run_id"]):
            manifest["refused"] = str(error)
        raise
    finally:
        record = session.record() | {"upload": upload_cost(store)}
        try:
            if session.was_displaced:
                newest(store, manifest)
            else:
                left = session.objects_left
                manifest["objects_left"] = left_before if left is None else left
            manifest["sessions"] = [*manifest["sessions"], record]
            write_manifest(store, manifest["run_id"], manifest)
        except StoreError as error:
            raise StageError(f"the end of this session is not in the manifest: {error}") from error


def finish(store: ObjectStore, manifest: Manifest) -> Outcome:
    """Write the verdict and the end into the manifest, and return what there is to say."""
    outcome = outcome_of(store, manifest)
    manifest |= {"finished_at": now(), "verdict": outcome.verdict, "reasons": list(outcome.reasons)}
    manifest |= write_summaries(store, manifest["run_id"])
    write_manifest(store, manifest["run_id"], manifest)
    return outcome


def finished_before(request: RunRequest) -> Outcome | None:
    """The outcome of a run that has done all of this before; None when something is left to do.

    Raises:
        ProfileError: the run id belongs to another profile, cluster, seed or faults file.
        StoreError: results of the run are gone or damaged.
    """
    store = open_store(request.store)
    manifest = read_manifest(store, request.run_id)
    if manifest is None or not has_begun(store, request.run_id):
        return None
    check_same_run(manifest, request)
    outcome = outcome_of(store, manifest)
    commits = last_complete(read_commits(store, request.run_id))
    is_done = {"report": outcome.report is not None, "clean": outcome.objects_left is False}
    wanted = steps_to_take(request)
    done = all(is_done.get(step.stage, commit_of(step, commits) is not None) for step in wanted)
    if not done or manifest["finished_at"] is None:
        return None
    check_parts(store, request.run_id)
    return outcome
