"""One virtual cluster in real time: its API server, its controllers, the client for requests from outside."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from infra.cluster.kinds import CONFIG_MAP, EVENT
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.assembly import add_controllers, add_operators, add_subresources, initial_objects
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.description import Description, Rate
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.faults import STRUCK, FaultPlan, Faults, Moment
from infra.cluster.virtual.platform_objects import platform_objects
from infra.cluster.virtual.runtime import seed_objects
from infra.cluster.virtual.weather import ExposedClient, PatientClient, Weather
from infra.errors import NotFound
from infra.served.controllers import PatientPlane
from infra.served.realtime import RealTimeLoop, ServedApiServer

EVENTS_KEPT = timedelta(hours=1)
"""As kube-apiserver's --event-ttl."""
SWEEP_S = 60.0
_AT_THE_START = Moment("boot", 1, 1)
MARK: Object = {
    "apiVersion": CONFIG_MAP.api_version,
    "kind": CONFIG_MAP.kind,
    "metadata": {"name": "virtscale-world", "namespace": "kube-system"},
    "data": {"world": "served"},
}
"""Tells every client which world this is."""


@dataclass(frozen=True)
class ServedCluster:
    """`client` is how requests from outside reach `server`: through the faults' weather, if there is any."""

    server: ServedApiServer
    client: Cluster
    plane: ControlPlane


@asynccontextmanager
async def cluster(description: Description, plan: FaultPlan, seed: int = 1) -> AsyncIterator[ServedCluster]:
    """A cluster with its controllers at work, for the length of the block, on a running `RealTimeLoop`.

    Timed faults count from its start, whatever stage or batch they name: nobody tells a server of batches.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, RealTimeLoop)
    server = ServedApiServer(loop, _with_events(description))
    draws = Draws(seed)
    weather: Weather | None = None

    def controllers_client(rate: Rate) -> Cluster:
        inner = server.client(rate)
        return cast(Cluster, PatientClient(inner, lambda: weather)) if plan.fault else inner

    faults = Faults(_from_the_start(plan), draws)
    plane = PatientPlane(controllers_client, server.clock, server.description, draws, faults)
    client: Cluster = server.client()
    if plan.fault:
        weather = Weather(server, plane, draws)
        client = ExposedClient(server.client(), weather)
    _seed(server, draws)
    add_controllers(plane)
    add_operators(plane)
    add_subresources(server, plane)
    await plane.start()
    sweep = loop.create_task(_forget_old_events(server), name="event expiry")
    if weather is not None:
        weather.measures(_AT_THE_START)
        faults.moment = None
    try:
        yield ServedCluster(server, client, plane)
    finally:
        sweep.cancel()
        await plane.stop()


def _seed(server: ServedApiServer, draws: Draws) -> None:
    """What there is at the start."""
    described = server.description
    objects = [*initial_objects(described, draws), *platform_objects(described), MARK]
    seed_objects(server.store, objects, server.stamp())
    server.first_version = server.store.resource_version


def _with_events(description: Description) -> Description:
    """Events are kept here: people read them."""
    return description.model_copy(update={"api": description.api.model_copy(update={"normal_events": True})})


def _from_the_start(plan: FaultPlan) -> FaultPlan:
    anywhere = {"stage": _AT_THE_START.stage, "batch": None, "attempt": None}
    return FaultPlan.model_construct(
        fault=tuple(f if f.kind in STRUCK else f.model_copy(update=anywhere) for f in plan.fault)
    )


async def _forget_old_events(server: ServedApiServer) -> None:
    """Delete events that are an hour old."""
    while True:
        await asyncio.sleep(SWEEP_S)
        oldest = (server.clock.wall() - EVENTS_KEPT).strftime("%Y-%m-%dT%H:%M:%SZ")
        for (namespace, name), event in list(server.store.objects(EVENT).items()):
            if event["metadata"]["creationTimestamp"] < oldest:
                with suppress(NotFound):
                    server.store.delete(Ref(EVENT, namespace, name), server.stamp())


def random_suffix() -> str:
    """Five characters for `generateName`, of those that a real API server uses."""
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
