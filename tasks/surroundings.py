"""What decides a run's numbers and is not in its profile: read from the cluster, nothing is changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.cluster.kinds import KUBEVIRT, SELF_SUBJECT_REVIEW, STORAGE_CLASS
from infra.cluster.port import Object, Ref, Scope
from infra.errors import Forbidden, Invalid, NotFound
from infra.results.read import scan
from infra.world import World, description_of
from tasks.records import TABLES
from tasks.requests import resent
from tasks.run import RunRequest

IN_PROCESS = "in process"
DEFAULT = "KubeVirt's default"
COMPONENTS = ("api", "controller", "handler", "webhook")
"""The components of KubeVirt whose client limits a KubeVirt object states."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found; None: not known (no right to look, or no such object)."""

    tuning: dict[str, Any] | None
    volume_binding_mode: str | None
    caller: str | None
    prober_path: str | None


async def surroundings(world: World, request: RunRequest) -> Surroundings:
    """Look around.

    Raises:
        ClusterError: the cluster does not answer.
    """
    return Surroundings(
        tuning=await _tuning(world, request),
        volume_binding_mode=await _binding_mode(world, request.profile.vm.storage_class),
        caller=await _caller(world),
        prober_path=world.guests.path,
    )


async def _tuning(world: World, request: RunRequest) -> dict[str, Any] | None:
    """Effective rates (queries a second/burst) of KubeVirt; knobs, where a stage looked at them."""
    found = await _first(world, Scope(KUBEVIRT))
    if found is None:
        return None
    configuration = (found.get("spec") or {}).get("configuration") or {}
    tuning: dict[str, Any] = {"rates": {name: stated_rate(configuration, name) for name in COMPONENTS}}
    if request.spec().is_virtual:
        rates = description_of(request.cluster).rates.model_dump()
        tuning["model"] = {name: f"{rate['qps']:g}/{rate['burst']}" for name, rate in rates.items()}
    knobs = scan(world.results.store, world.run_id, "knobs", TABLES["knobs"])
    if not knobs.is_empty():
        rows = knobs.select("knob", "object", "field", "effective").unique(maintain_order=True).to_dicts()
        tuning["knobs"] = {f"{row['knob']} {row['object']} {row['field']}": row["effective"] for row in rows}
    return tuning


def stated_rate(configuration: Mapping[str, Any], component: str) -> str:
    """`100/200` of a component in a KubeVirt's configuration, or the words for what it does not state."""
    limits: Any = configuration.get(f"{component}Configuration") or {}
    for key in ("restClient", "rateLimiter", "tokenBucketRateLimiter"):
        limits = limits.get(key) or {}
    return f"{limits['qps']:g}/{limits['burst']}" if {"qps", "burst"} <= set(limits) else DEFAULT


async def _binding_mode(world: World, name: str) -> str | None:
    try:
        found = await resent(world, lambda: world.cluster.get(Ref(STORAGE_CLASS, "", name)))
    except (NotFound, Forbidden):
        return None
    return str(found.get("volumeBindingMode", "Immediate"))


async def _caller(world: World) -> str | None:
    """Who the API server says we are."""
    if world.name == "virtual":
        return IN_PROCESS
    review = {
        "apiVersion": SELF_SUBJECT_REVIEW.api_version,
        "kind": SELF_SUBJECT_REVIEW.kind,
        "metadata": {},
    }
    try:
        answer = await resent(world, lambda: world.cluster.create(review))
    except (NotFound, Forbidden, Invalid):
        return None
    name = ((answer.get("status") or {}).get("userInfo") or {}).get("username")
    return None if name is None else str(name)


async def _first(world: World, scope: Scope) -> Object | None:
    try:
        items = (await resent(world, lambda: world.cluster.list(scope, limit=1))).items
    except (NotFound, Forbidden):
        return None
    return items[0] if items else None
