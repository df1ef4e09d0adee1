"""IO alone: reads and writes of a growing fleet under one cap."""

from typing import Any

from prefect import flow

from flows.forms import IoForm
from flows.pipeline import conducted, flow_run_name


@flow(name="io scaling", flow_run_name=flow_run_name, retries=0)
def io_scaling(request: IoForm) -> dict[str, Any]:
    """Preflight, golden image, IO per fleet size, report, clean.

    Args:
        request: What to run and where.
    """
    return conducted(request.request())
