"""Settings that are there and do nothing, or not what they seem to: the catalogue's traps, looked for."""

from infra.cluster.kinds import HYPERCONVERGED, KUBELET_CONFIG, MACHINE_CONFIG_POOL
from infra.cluster.port import Object, Scope
from tasks.tuning_look import Look, value_at

ANNOTATION = "hco.kubevirt.io/tuningPolicy"
MOST_KUBELET_CONFIGS = 10
Trap = tuple[str, str, str]
"""Name, object, what is wrong with it."""


async def traps(look: Look) -> list[Trap]:
    """Every trap that this cluster has fallen into; reads only."""
    pools = await look.many(Scope(MACHINE_CONFIG_POOL)) or []
    kubelet = await look.many(Scope(KUBELET_CONFIG)) or []
    hyperconverged = await look.many(Scope(HYPERCONVERGED)) or []
    found = [trap for obj in kubelet for trap in _of_kubelet_config(obj, pools)]
    if len(kubelet) >= MOST_KUBELET_CONFIGS:
        many = f"{len(kubelet)} of them; a cluster takes {MOST_KUBELET_CONFIGS}"
        found.append(("too-many-kubelet-configs", KUBELET_CONFIG.kind, many))
    found += [trap for pool in pools for trap in _of_pool(pool)]
    return found + [trap for obj in hyperconverged for trap in _of_hyperconverged(obj)]


def _name(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


def _of_kubelet_config(obj: Object, pools: list[Object]) -> list[Trap]:
    found: list[Trap] = []
    labels = value_at(obj, ("spec", "machineConfigPoolSelector", "matchLabels")) or {}
    if labels and not any(labels.items() <= (p["metadata"].get("labels") or {}).items() for p in pools):
        said = ", ".join(f"{key}={value}" for key, value in labels.items())
        found.append(("selector-without-pool", _name(obj), f"no MachineConfigPool is labelled {said}"))
    if value_at(obj, ("spec", "kubeletConfig", "autoSizingReserved")) is not None:
        note = "autoSizingReserved below kubeletConfig is ignored: it belongs directly under spec"
        found.append(("nested-auto-sizing", _name(obj), note))
    return found


def _of_pool(pool: Object) -> list[Trap]:
    if not value_at(pool, ("spec", "paused")):
        return []
    return [("paused-pool", _name(pool), "it is paused: configurations are accepted and not rolled out")]


def _of_hyperconverged(obj: Object) -> list[Trap]:
    policy = value_at(obj, ("spec", "tuningPolicy"))
    annotation = value_at(obj, ("metadata", "annotations", ANNOTATION))
    if annotation and policy is None:
        return [("policy-without-effect", _name(obj), "the tuning annotation is ignored without the policy")]
    if annotation and policy == "highBurst":
        return [("policy-refused", _name(obj), "highBurst and the tuning annotation exclude each other")]
    if policy == "annotation" and not annotation:
        return [("policy-refused", _name(obj), "the policy annotation needs the annotation")]
    return []
