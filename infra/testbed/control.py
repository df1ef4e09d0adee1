"""The virtual controllers at work on a testbed's real API server, as ordinary clients of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from infra import settings
from infra.clock import MonotonicClock
from infra.cluster.kinds import (
    CONFIG_MAP,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    NAMESPACE,
    NETWORK_ENACTMENT,
    NETWORK_POLICY,
    kind_of,
)
from infra.cluster.port import Cluster, Object, Scope, ref_of
from infra.cluster.real.adapter import connect
from infra.cluster.virtual.assembly import add_controllers, add_operators, initial_objects
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.controllers import virt_api as answers
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.faults import FaultPlan, Faults
from infra.cluster.virtual.platform_objects import platform_objects
from infra.errors import AlreadyExists, ClusterError, NotFound
from infra.testbed.patient import PatientCluster
from infra.testbed.state import for_kubeconfig
from infra.testbed.virt_api import serving

MARK = {
    "apiVersion": CONFIG_MAP.api_version,
    "kind": CONFIG_MAP.kind,
    "metadata": {"name": "virtscale-world", "namespace": "kube-system"},
    "data": {"world": "testbed"},
}
"""Tells every client that KubeVirt is played by virtual controllers here."""

MADE_LATER = (KUBELET_CONFIG, MACHINE_CONFIG, NETWORK_POLICY, NETWORK_ENACTMENT)
"""Kinds that OpenShift's operators watch, and of which a cluster need not have an object."""


@asynccontextmanager
async def controllers(
    context: str, description: Description, faults: FaultPlan
) -> AsyncIterator[ControlPlane]:
    """Let the virtual controllers act on `context` for the length of the block.

    OpenShift's operators are among them where its kinds are served: the plane's description says so.

    Raises:
        ClusterError: the context does not lead to a testbed of ours, or cannot be used.
    """
    state = for_kubeconfig(Path(settings.kubeconfig()))
    cluster = PatientCluster(await connect(context))
    try:
        description = await _as_served(cluster, description)
        await _seed(cluster, description)
        draws = Draws(1)
        plane = ControlPlane(lambda _: cluster, MonotonicClock(), description, draws, Faults(faults, draws))
        add_controllers(plane)
        add_operators(plane)

        async def start_stop(namespace: str, name: str, verb: str, options: Mapping[str, Any]) -> int:
            await _verb(verb)(cluster, namespace, name, dict(options))
            return 202

        await plane.start()
        try:
            async with serving(state, start_stop):
                await _create(cluster, MARK)
                yield plane
                await cluster.delete(ref_of(MARK))
        finally:
            await plane.stop()
    finally:
        await cluster.close()


def _verb(verb: str) -> Any:
    if verb == "start":
        return answers.start
    if verb == "stop":
        return answers.stop
    raise ClusterError(f"{verb} of a VirtualMachine is not served by the virtual controllers")


async def _as_served(cluster: Cluster, description: Description) -> Description:
    """The description without OpenShift's operators where one of their kinds is not served."""
    kinds = {kind_of(obj["apiVersion"], obj["kind"]): None for obj in platform_objects(description)}
    served = await asyncio.gather(*(_is_served(cluster, Scope(kind)) for kind in (*kinds, *MADE_LATER)))
    if all(served):
        return description
    without = description.openshift.model_copy(update={"operators": False})
    return description.model_copy(update={"openshift": without})


async def _is_served(cluster: Cluster, scope: Scope) -> bool:
    try:
        await cluster.list(scope, limit=1)
    except NotFound:
        return False
    return True


async def _seed(cluster: Cluster, description: Description) -> None:
    """What the description's cluster has before a run; what exists is left as it is."""
    objects = [*initial_objects(description, Draws(1)), *platform_objects(description)]
    spaces = [obj for obj in objects if obj["kind"] == NAMESPACE.kind]
    await asyncio.gather(*(_create(cluster, obj) for obj in spaces))
    await asyncio.gather(*(_create(cluster, obj) for obj in objects if obj["kind"] != NAMESPACE.kind))


async def _create(cluster: Cluster, obj: Object) -> None:
    plain = {key: value for key, value in obj.items() if key != "status"}
    try:
        await cluster.create(plain)
    except AlreadyExists:
        return
    if "status" in obj and kind_of(obj["apiVersion"], obj["kind"]).status_subresource:
        await cluster.patch(ref_of(obj), {"status": obj["status"]}, subresource="status")
