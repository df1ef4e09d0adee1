"""The gate between batches: nothing of the last one is left, and the API is as quick as at the start."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

from infra.cluster.kinds import NAMESPACE
from infra.cluster.port import Ref
from infra.errors import NotFound
from infra.world import World
from tasks.batch import NS
from tasks.profile import Profile
from tasks.requests import resent

PROBES = 9
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
PROBE_KEY = "api_answer_s"
"""Key of a commit's summary that holds the API's answer time before the batch."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """How the gate was passed; `quiet` is False when its limit passed first."""

    quiesce_s: float
    leftovers: int
    quiet: bool


async def api_answer_s(world: World, profile: Profile) -> float:
    """Median time of a few small reads, one after the other, seconds."""
    ref = Ref(NAMESPACE, "", profile.namespace)
    times = []
    for _ in range(PROBES):
        start_ns = world.clock.now_ns()
        await resent(world, lambda: _read(world, ref))
        times.append((world.clock.now_ns() - start_ns) / NS)
    return median(times)


async def _read(world: World, ref: Ref) -> None:
    try:
        await world.cluster.get(ref)
    except NotFound:
        return


async def first_answer_s(world: World, profile: Profile) -> float:
    """The API's answer time when the cluster was quiet: of the first commit that has one, else now."""
    for commit in world.results.past():
        if isinstance(commit.summary.get(PROBE_KEY), float):
            return float(commit.summary[PROBE_KEY])
    return await api_answer_s(world, profile)


async def quiesce(
    world: World, profile: Profile, count: Callable[[], Awaitable[int]], first_s: float
) -> Quiet:
    """Wait until `count` finds nothing and the API answers as quickly as `first_s`, within the limit."""
    start_ns, pause_s = world.clock.now_ns(), FIRST_PAUSE_S
    slowest_s = first_s * profile.quiesce.probe_ratio
    while True:
        leftovers = await count()
        quiet = leftovers == 0 and await api_answer_s(world, profile) <= slowest_s
        took_s = (world.clock.now_ns() - start_ns) / NS
        if quiet or took_s >= profile.quiesce.limit_s:
            return Quiet(took_s, leftovers, quiet)
        await world.clock.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 1.5)
