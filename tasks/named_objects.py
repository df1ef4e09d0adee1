"""PURE. Objects of the cluster that a profile names, and that no dry run of a VirtualMachine would miss."""

from collections.abc import Iterator

from infra.cluster.kinds import (
    ATTACHED_NETWORK,
    CLUSTER_INSTANCE_TYPE,
    CLUSTER_PREFERENCE,
    INSTANCE_TYPE,
    PREFERENCE,
    PRIORITY_CLASS,
    Kind,
)
from infra.cluster.port import Ref
from infra.own_manifest import reference
from tasks.profile import Profile


def named_objects(profile: Profile) -> Iterator[tuple[str, Ref]]:
    """Each with the key of `[vm]` that names it."""
    shape, place = profile.vm, profile.namespace
    if shape.network:
        namespace, _, network = shape.network.rpartition("/")
        yield "network", Ref(ATTACHED_NETWORK, namespace or place, network)
    if shape.priority_class:
        yield "priority_class", Ref(PRIORITY_CLASS, "", shape.priority_class)
    if shape.instance_type:
        kinds = (INSTANCE_TYPE, CLUSTER_INSTANCE_TYPE)
        yield "instance_type", _referred("instancetype", shape.instance_type, place, kinds)
    if shape.preference:
        yield "preference", _referred("preference", shape.preference, place, (PREFERENCE, CLUSTER_PREFERENCE))


def _referred(field: str, text: str, namespace: str, kinds: tuple[Kind, Kind]) -> Ref:
    given = reference(field, text)
    kind = next(each for each in kinds if each.kind == given["kind"])
    return Ref(kind, namespace if kind.namespaced else "", given["name"])
