"""The study as a Prefect flow: one task per step, named as the procedure reads.

The data is in the store and its commits decide what is done; Prefect keeps small summaries, so that
Retry goes on after the last finished step. Entrypoint: `flows.pipeline.study`.
"""

from typing import Any

from prefect import flow, task
from prefect.runtime import flow_run

from flows.steps import Step
from flows.study import conduct, run_step
from tasks.profile import StageName, with_stages
from tasks.run import RunRequest

KEY = "{flow_run.id}/{parameters[stage]}-{parameters[cell]}-{parameters[repeat]}"


@task(persist_result=True, result_storage_key=KEY, result_serializer="json", retries=0)
def measured_step(request: dict[str, Any], stage: StageName, cell: str, repeat: int) -> dict[str, Any]:
    """One step of the run, in a world of its own; returns its summary."""
    return run_step(RunRequest.model_validate(request), Step(stage, cell, repeat))


def as_task(request: RunRequest, step: Step) -> dict[str, Any]:
    """Take a step as a task run that carries its name."""
    named = measured_step.with_options(name=step.label, task_run_name=step.label)
    return named(request.model_dump(mode="json"), step.stage, step.cell, step.repeat)


def flow_run_name() -> str:
    """`study 7f3a-quiet-heron virtual:study`."""
    request = flow_run.parameters["request"]
    asked = request if isinstance(request, RunRequest) else RunRequest.model_validate(request)
    return f"{flow_run.flow_name} {asked.run_id or flow_run.id} {asked.cluster}"


def conducted(request: RunRequest, *stages: StageName) -> dict[str, Any]:
    """The run, its steps as tasks; `stages` narrow it. Without a run id it is the flow run's own."""
    profile = with_stages(request.profile, stages, "flow") if stages else request.profile
    run_id = request.run_id or str(flow_run.id)
    return conduct(request.model_copy(update={"run_id": run_id, "profile": profile}), as_task).as_json()


@flow(name="study", flow_run_name=flow_run_name, retries=0)
def study(request: RunRequest) -> dict[str, Any]:
    """Preflight, golden image, deploys, boot storms, report, clean.

    Args:
        request: What to run and where.
    """
    return conducted(request)
