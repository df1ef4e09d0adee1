"""Tuning alone: what a cluster is set to against what the profile says it should be."""

from typing import Any

from prefect import flow

from flows.approval import approval, granted
from flows.forms import TuningForm
from flows.pipeline import conducted, flow_run_name


@flow(name="tuning", flow_run_name=flow_run_name, retries=0)
def tuning(request: TuningForm) -> dict[str, Any]:
    """Preflight, then an audit of the knobs, or setting them; `virtscale revert` takes it back.

    Args:
        request: What to run and where.
    """
    if request.approved:
        approval.set(granted)
    return conducted(request.request())
