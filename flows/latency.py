"""Latency alone: jitter and network latency of real-time VirtualMachines."""

from typing import Any

from prefect import flow

from flows.cancelling import clean_after
from flows.forms import LatencyForm
from flows.pipeline import conducted, flow_run_name


@flow(name="latency", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def latency(request: LatencyForm) -> Any:
    """Preflight, golden image, latency tools, report, clean.

    Args:
        request: What to run and where.
    """
    return conducted(request.request())
