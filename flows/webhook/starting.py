"""Starts a deployment's run, once per key; what Prefect says becomes one of four answers."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol, TypeVar

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.utilities.urls import url_for

from flows.webhook.rules import Unacceptable, complete
from infra.errors import VirtscaleError

T = TypeVar("T")
READY_S = 2.0
"""Who asks whether we are ready does not wait for long."""
FRESH_S = 2.0
"""A deployment that was read so recently is not read again: that would be half of the time of a request."""


class PrefectAway(VirtscaleError):
    """Prefect does not answer, or not now: the same delivery may be sent again."""


class NoDeployment(VirtscaleError):
    """The server does not have the deployment, or nobody would start its run."""


class Contradiction(VirtscaleError):
    """The delivery started a run before, with other parameters."""


class Started(NamedTuple):
    """The run of a delivery."""

    run_id: str
    name: str
    url: str


class Order(NamedTuple):
    """What is to be started: the form's fields, and the key that stands for the delivery."""

    deployment: str
    fields: dict[str, Any]
    key: str
    tags: tuple[str, ...]


class Starter(Protocol):
    """Checks and starts; nothing is started by a check."""

    async def check(self, order: Order) -> dict[str, Any]:
        """The run's parameters; Unacceptable, NoDeployment, PrefectAway."""
        ...

    async def start(self, order: Order) -> Started:
        """The delivery's run, new or not; as `check`, and Contradiction."""
        ...

    async def is_ready(self) -> bool:
        """Whether Prefect answers."""
        ...


class PrefectStarter:
    """Through the Prefect API."""

    def __init__(self, client: PrefectClient, limit_s: float) -> None:
        self._client, self._limit_s = client, limit_s
        self._read: dict[str, tuple[float, DeploymentResponse]] = {}

    async def check(self, order: Order) -> dict[str, Any]:
        """The run's parameters: the deployment's, then the order's."""
        return self._request(await self._deployment(order.deployment), order)

    async def start(self, order: Order) -> Started:
        """Create the run, or find that of the same key."""
        read_s, deployment = self._read.get(order.deployment, (-FRESH_S, None))
        if deployment is None or time.monotonic() - read_s > FRESH_S:
            deployment = await self._deployment(order.deployment)
        request = self._request(deployment, order)
        try:
            run = await self._answer(
                self._client.create_flow_run_from_deployment(
                    deployment.id,
                    parameters={"request": request},
                    idempotency_key=order.key,
                    tags=list(order.tags),
                )
            )
        except VirtscaleError:
            self._read.pop(order.deployment, None)
            raise
        if run.parameters.get("request") != request:
            raise Contradiction("the delivery id was used before, for another request")
        return Started(str(run.id), run.name, url_for("flow-run", run.id) or "")

    async def is_ready(self) -> bool:
        """Whether Prefect answers."""
        try:
            async with asyncio.timeout(READY_S):
                return await self._client.api_healthcheck() is None
        except TimeoutError:
            return False

    async def _deployment(self, name: str) -> DeploymentResponse:
        found = await self._answer(self._client.read_deployment_by_name(name))
        if found.work_pool_name is None:
            raise NoDeployment(f"{name} has no work pool: no run would start (virtscale prefect apply)")
        self._read[name] = (time.monotonic(), found)
        return found

    @staticmethod
    def _request(deployment: DeploymentResponse, order: Order) -> dict[str, Any]:
        given = deployment.parameters.get("request", {})
        return complete(order.deployment.partition("/")[0], {**given, **order.fields})

    async def _answer(self, asked: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._limit_s):
                return await asked
        except ObjectNotFound:
            raise NoDeployment("Prefect has no such deployment (virtscale prefect apply)") from None
        except httpx.HTTPStatusError as error:
            if error.response.status_code in {httpx.codes.CONFLICT, httpx.codes.UNPROCESSABLE_ENTITY}:
                raise Unacceptable(f"parameters: {_detail(error.response)}") from error
            raise PrefectAway(f"Prefect answers {error.response.status_code}") from error
        except (httpx.HTTPError, PrefectException, TimeoutError, OSError) as error:
            raise PrefectAway(f"Prefect does not answer: {type(error).__name__}") from error


def _detail(response: httpx.Response) -> str:
    """What the server found wrong: `Validation failed for field 'request.seed'. Failure reason: ...`."""
    try:
        return " ".join(str(response.json().get("detail", "refused")).split())[:500]
    except (ValueError, AttributeError):
        return "refused"
