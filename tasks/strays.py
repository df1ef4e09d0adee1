"""Strays: objects that carry a run's label and its nonce, and are in no ledger that this machine has.

Another machine may have made them for the run and died before it stored its ledger; or somebody copied one
of ours, marks and all. Nobody can tell from here, so they are never deleted, and never called gone.
"""

from collections import Counter
from collections.abc import Iterable

from infra.cluster.kinds import (
    DATA_SOURCE,
    DATA_VOLUME,
    NAMESPACE,
    POD,
    PVC,
    ROLE,
    ROLE_BINDING,
    SNAPSHOT,
    VM,
    VMI,
    Kind,
)
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import NotFound, StageError
from infra.manifests import RUN_LABEL, run_selector
from infra.world import World
from tasks.ownership import Ledger, find, is_ours
from tasks.requests import is_marked, resent

KINDS = (VM, VMI, POD, DATA_VOLUME, DATA_SOURCE, SNAPSHOT, PVC, ROLE, ROLE_BINDING)

Strays = Counter[tuple[Kind, str]]
"""How many of which kind, in which namespace."""


async def check_strays(world: World, ledger: Ledger, places: Iterable[str]) -> None:
    """Nothing when no stray is in these namespaces, nor one of them itself.

    A virtual cluster has none: it is stored by the same commit as its ledger.

    Raises:
        StageError: there are some; it says how many of what are where, and what to do.
    """
    if world.name == "virtual":
        return
    strays: Strays = Counter()
    for where in dict.fromkeys(places):
        own = await find(world, Ref(NAMESPACE, "", where))
        if own is None:
            continue
        for kind in KINDS:
            strays[kind, where] = sum(
                _is_stray(world, ledger, kind, obj) for obj in await _all(world, kind, where)
            )
        strays[NAMESPACE, where] = int(_is_stray(world, ledger, NAMESPACE, own))
    if strays.total():
        raise StageError(_text(world.run_id, +strays))


def _is_stray(world: World, ledger: Ledger, kind: Kind, obj: Object) -> bool:
    """What is on its way out is none; what an owner made goes with the owner, which is counted."""
    meta = obj["metadata"]
    if "deletionTimestamp" in meta or meta.get("ownerReferences"):
        return False
    return is_marked(world, obj) and not is_ours(world, ledger, kind, obj)


async def _all(world: World, kind: Kind, where: str) -> list[Object]:
    scope = Scope(kind, where, run_selector(world.run_id))
    try:
        return (await resent(world, lambda: list_all(world.cluster, scope))).items
    except NotFound:
        return []


def _text(run_id: str, strays: Strays) -> str:
    counted = ", ".join(f"{n:,} {kind.kind} {_in(kind, where)}" for (kind, where), n in strays.items())
    commands = "; ".join(_commands(run_id, strays))
    return (
        f"not everything that run {run_id} created is gone: {counted} carry its marks and are in no ledger "
        f"of this machine; run `virtscale clean {run_id}` on the machine that ran it, or, if that is lost "
        f"and nobody needs them: {commands}"
    )


def _in(kind: Kind, where: str) -> str:
    return f"in {where}" if kind.namespaced else where


def _commands(run_id: str, strays: Strays) -> Iterable[str]:
    """One a namespace; by label, as kubectl cannot select by annotation. A namespace is deleted last."""
    for where in dict.fromkeys(where for _, where in strays):
        kinds = [kind for kind, place in strays if place == where and kind.namespaced]
        if kinds:
            names = ",".join(f"{kind.plural}.{kind.group}" if kind.group else kind.plural for kind in kinds)
            yield f"kubectl -n {where} delete {names} -l {RUN_LABEL}={run_id}"
    for kind, where in strays:
        if not kind.namespaced:
            yield f"kubectl delete {kind.plural} {where}"
