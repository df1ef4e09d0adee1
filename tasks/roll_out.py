"""Waiting for what was set to arrive: accepted is not rolled out.

Right after a change a MachineConfigPool still says Updated, for its old configuration. So a roll-out is
first seen to begin (another rendered configuration, or Updating), then to end.
"""

from typing import Any

from infra.cluster.kinds import (
    HYPERCONVERGED,
    MACHINE_CONFIG_POOL,
    NETWORK_ENACTMENT,
    NETWORK_POLICY,
    NODE,
    TUNED,
    TUNED_PROFILE,
)
from infra.cluster.port import Object, Ref, Scope
from infra.errors import StageError
from infra.world import World
from tasks.observing import wait_until
from tasks.requests import resent

BEGIN_LIMIT_S = 300.0
OPERATOR_LIMIT_S = 900.0
Marks = dict[str, str]
"""MachineConfigPool to the rendered configuration that it had."""


async def pool_marks(world: World) -> Marks:
    """The rendered configuration of every pool now: taken before anything is changed."""
    pools = (await resent(world, lambda: world.cluster.list(Scope(MACHINE_CONFIG_POOL)))).items
    return {pool["metadata"]["name"]: _rendered(pool) for pool in pools}


def _rendered(pool: Object) -> str:
    return str((pool["spec"].get("configuration") or {}).get("name", ""))


def conditions_of(obj: Object) -> dict[str, str]:
    """An object's conditions: type to status."""
    return {each["type"]: each["status"] for each in (obj.get("status") or {}).get("conditions") or ()}


def is_rolled_out(pool: Object) -> bool:
    """Updated, not updating, all machines counted, and the status has the spec's configuration."""
    said, status = conditions_of(pool), pool.get("status") or {}
    return (
        (said.get("Updated"), said.get("Updating"), said.get("Degraded")) == ("True", "False", "False")
        and status.get("updatedMachineCount") == status.get("machineCount")
        and _rendered(pool) == (status.get("configuration") or {}).get("name")
    )


def _is_degraded(pool: Object) -> bool:
    return "True" in (conditions_of(pool).get("Degraded"), conditions_of(pool).get("RenderDegraded"))


async def pools_rolled_out(world: World, marks: Marks, limit_s: float) -> bool:
    """Wait until the pools have rolled out what was changed after `marks`; False: none ever began.

    Raises:
        StageError: a pool is degraded, or not done within the limit.
    """
    scope, seen = Scope(MACHINE_CONFIG_POOL), dict[str, Any]()

    def begun(pools: dict[str, Object]) -> bool:
        return any(
            _rendered(pool) != marks.get(name) or conditions_of(pool).get("Updating") == "True"
            for name, pool in pools.items()
        )

    def ended(pools: dict[str, Object]) -> bool:
        seen.update(pools)
        return all(is_rolled_out(pool) for pool in pools.values()) or any(map(_is_degraded, pools.values()))

    try:
        await wait_until(world, scope, begun, BEGIN_LIMIT_S)
    except StageError:
        return False
    await wait_until(world, scope, ended, limit_s)
    for name, pool in seen.items():
        if _is_degraded(pool):
            raise StageError(f"MachineConfigPool {name} is degraded: look at the conditions of its nodes")
    return True


async def rolled_out(world: World, obj: Object, limit_s: float) -> None:
    """Wait until an applied object has taken effect, as far as its operator reports it.

    Raises:
        StageError: not within the limit.
    """
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    generation = obj["metadata"].get("generation", 1)
    if obj["kind"] == HYPERCONVERGED.kind:
        scope = Scope(HYPERCONVERGED, namespace)
        await wait_until(world, scope, lambda found: _is_reconciled(found.get(name), generation), limit_s)
    elif obj["kind"] == TUNED.kind:
        await wait_until(world, Scope(TUNED_PROFILE, namespace), _are_applied, limit_s)
    elif obj["kind"] == NETWORK_POLICY.kind:
        selector = ",".join(f"{key}={value}" for key, value in obj["spec"].get("nodeSelector", {}).items())
        nodes = (await resent(world, lambda: world.cluster.list(Scope(NODE, labels=selector)))).items
        scope = Scope(NETWORK_ENACTMENT, labels=f"nmstate.io/policy={name}")
        await wait_until(
            world, scope, lambda found: _are_enacted(found, len(nodes), generation), min(limit_s, 86_400)
        )


def _is_reconciled(obj: Object | None, generation: int) -> bool:
    if obj is None or obj.get("status", {}).get("observedGeneration", generation) < generation:
        return False
    said = conditions_of(obj)
    wanted = {"ReconcileComplete": "True", "Available": "True", "Progressing": "False"}
    return all(said.get(key) == value for key, value in wanted.items())


def _are_applied(profiles: dict[str, Object]) -> bool:
    return all(
        conditions_of(each).get("Applied") == "True"
        and each["spec"]["config"]["tunedProfile"] == each["status"]["tunedProfile"]
        for each in profiles.values()
    )


def _are_enacted(enactments: dict[str, Object], nodes: int, generation: int) -> bool:
    current = [
        each
        for each in enactments.values()
        if (each.get("status") or {}).get("policyGeneration") == generation
        and conditions_of(each).get("Available") == "True"
    ]
    return len(current) >= nodes


async def settled(world: World, refs: list[Ref]) -> None:
    """Wait until no pool is in the middle of a roll-out, where this cluster has pools at all."""
    if any(ref.kind.group == MACHINE_CONFIG_POOL.group for ref in refs):
        await wait_until(
            world, Scope(MACHINE_CONFIG_POOL), lambda found: all(map(is_rolled_out, found.values())), 604_800
        )
