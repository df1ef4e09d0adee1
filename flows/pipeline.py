"""The study as a Prefect flow: one task per step, named as the procedure reads.

The data is in the store and its commits decide what is done; Prefect keeps small summaries, so that
Retry goes on after the last finished step. Entrypoint: `flows.pipeline.study`.
"""

from typing import Any

from prefect import flow, task
from prefect.logging import get_run_logger
from prefect.runtime import flow_run, task_run

from flows.approval import approval
from flows.artifacts import summarise, told
from flows.cancelling import RunCancelled, as_cancelled, cancellable, clean_after
from flows.forms import StudyForm
from flows.side_by_side import StepRunner
from flows.steps import Step
from flows.study import conduct, run_step
from flows.suspension import Decide, decider
from flows.taking import done_before
from flows.workers import workers_of
from tasks.profile import StageName
from tasks.run import RunRequest

KEY = "{flow_run.id}/{parameters[stage]}-{parameters[cell]}-{parameters[repeat]}"


@task(persist_result=True, result_storage_key=KEY, result_serializer="json", retries=0)
def measured_step(request: dict[str, Any], stage: StageName, cell: str, repeat: int) -> dict[str, Any]:
    """One step of the run, in a world of its own; returns its summary. A cached one does not log."""
    get_run_logger().info("%s begins", task_run.name)
    return run_step(RunRequest.model_validate(request), Step(stage, cell, repeat))


def as_task(request: RunRequest, step: Step) -> dict[str, Any]:
    """Take a step as a task run that carries its name."""
    named = measured_step.with_options(name=step.label, task_run_name=step.label)
    return named(request.model_dump(mode="json"), step.stage, step.cell, step.repeat)


def asking(decide: Decide) -> StepRunner:
    """Take steps as task runs; before tuning, have it decided."""

    def run(request: RunRequest, step: Step) -> dict[str, Any]:
        if step.stage == "tuning" and not request.spec().is_virtual and not done_before(request, step):
            approval.set(decide(request))
        return as_task(request, step)

    return run


def flow_run_name() -> str:
    """`study 7f3a-quiet-heron virtual:study`."""
    asked = flow_run.parameters["request"]
    asked = asked if isinstance(asked, dict) else asked.model_dump(mode="json")
    words = (flow_run.flow_name, asked.get("run_id") or flow_run.id, asked.get("cluster", ""))
    return " ".join(word for word in words if word)


def conducted(request: RunRequest, run: StepRunner = as_task) -> Any:
    """The run, its steps as tasks: its outcome, or the state of one that was cancelled.

    Without a run id it is the flow run's own.
    """
    asked = request.model_copy(update={"run_id": request.run_id or str(flow_run.id)})
    try:
        with told(asked), cancellable(), workers_of(asked):
            outcome = conduct(asked, run)
    except RunCancelled:
        return as_cancelled()
    summarise(outcome, asked)
    return outcome.as_json()


@flow(name="study", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def study(request: StudyForm) -> Any:
    """Preflight, tuning, golden image, deploys, boot storms, IO, latency, report, clean.

    Args:
        request: What to run and where.
    """
    decide = decider(approved=request.approved, hours=request.approval_h)
    return conducted(request.request(), asking(decide))


@flow(name="study", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def resolved_study(request: RunRequest) -> Any:
    """The study that `virtscale run` asks for, its profile read already.

    Args:
        request: What to run and where.
    """
    return conducted(request)
