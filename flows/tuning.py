"""Tuning alone: what a cluster is set to against what the profile says it should be."""

from typing import Any

from prefect import flow

from flows.cancelling import clean_after
from flows.forms import TuningForm
from flows.pipeline import asking, conducted, flow_run_name
from flows.suspension import decider


@flow(name="tuning", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def tuning(request: TuningForm) -> Any:
    """Preflight, then an audit of the knobs, or setting them; `virtscale revert` takes it back.

    Args:
        request: What to run and where.
    """
    decide = decider(approved=request.approved, hours=request.approval_h)
    return conducted(request.request(), asking(decide))
