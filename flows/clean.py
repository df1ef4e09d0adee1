"""Cleaning alone: what a run left on its cluster goes, and nothing else."""

from typing import Any

from prefect import flow, task

from flows.cleaning import clean_run
from flows.forms import RunForm

cleaned = task(name="clean", task_run_name="clean", retries=0)(clean_run)


@flow(name="clean", flow_run_name="clean {request.run_id}", retries=0)
def clean(request: RunForm) -> dict[str, Any]:
    """Delete what a run created, from any state; its results stay.

    Args:
        request: Which run.
    """
    return cleaned(request.run_id, request.store)
