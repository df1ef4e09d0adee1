"""Boot storms alone: the halted VirtualMachines are made first where they are missing."""

from typing import Any

from prefect import flow

from flows.cancelling import clean_after
from flows.forms import BootStormForm
from flows.pipeline import conducted, flow_run_name


@flow(name="boot storm", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def boot_storm(request: BootStormForm) -> Any:
    """Preflight, golden image, boot storms, report, clean.

    Args:
        request: What to run and where.
    """
    return conducted(request.request())
