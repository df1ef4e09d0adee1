"""The golden image alone: import, snapshots, a canary clone."""

from typing import Any

from prefect import flow

from flows.cancelling import clean_after
from flows.forms import GoldenImageForm
from flows.pipeline import conducted, flow_run_name


@flow(name="golden image", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def golden_image(request: GoldenImageForm) -> Any:
    """Preflight, golden image, clean unless kept.

    Args:
        request: What to run and where.
    """
    return conducted(request.request())
