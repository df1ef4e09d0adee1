"""Latency alone: jitter and network latency of real-time VirtualMachines."""

from typing import Any

from prefect import flow

from flows.forms import LatencyForm
from flows.pipeline import conducted, flow_run_name


@flow(name="latency", flow_run_name=flow_run_name, retries=0)
def latency(request: LatencyForm) -> dict[str, Any]:
    """Preflight, golden image, latency tools, report, clean.

    Args:
        request: What to run and where.
    """
    return conducted(request.request())
