"""IO alone: reads and writes of a growing fleet under one cap."""

from typing import Any

from prefect import flow

from flows.cancelling import clean_after
from flows.forms import IoForm
from flows.pipeline import conducted, flow_run_name


@flow(name="io scaling", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def io_scaling(request: IoForm) -> Any:
    """Preflight, golden image, IO per fleet size, report, clean.

    Args:
        request: What to run and where.
    """
    return conducted(request.request())
