"""Deploys alone: create the batches' VirtualMachines and disks, delete them again, report."""

from typing import Any

from prefect import flow

from flows.cancelling import clean_after
from flows.forms import DeployForm
from flows.pipeline import conducted, flow_run_name


@flow(name="deploy", flow_run_name=flow_run_name, retries=0, on_cancellation=[clean_after])
def deploy(request: DeployForm) -> Any:
    """Preflight, golden image, deploys, report, clean.

    Args:
        request: What to run and where.
    """
    return conducted(request.request())
