"""The report alone: written again from what is stored, also of a run that is not finished."""

from typing import Any

from prefect import flow, task

from flows.artifacts import link_report
from flows.forms import RunForm
from infra.results.open import open_store
from tasks.report_stage import rebuild_report


@task(name="report", task_run_name="report", retries=0)
def written(run_id: str, store: str) -> str:
    """Write the report; returns where it is."""
    return rebuild_report(open_store(store), run_id)


@flow(name="report", flow_run_name="report {request.run_id}", retries=0)
def report(request: RunForm) -> dict[str, Any]:
    """Write the report of a run again.

    Args:
        request: Which run.
    """
    address = written(request.run_id, request.store)
    link_report(request.run_id, address)
    return {"run_id": request.run_id, "report": address}
