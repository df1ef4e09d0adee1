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
    """Each with the key that names it."""
    shape, place, section = profile.vm, profile.namespace, profile.latency
    if shape.network:
        yield "vm.network", _network(shape.network, place)
    if "latency" in profile.stages and section.sriov_network and not section.host_device:
        yield "latency.sriov_network", _network(section.sriov_network, place)
    if shape.priority_class:
        yield "vm.priority_class", Ref(PRIORITY_CLASS, "", shape.priority_class)
    if shape.instance_type:
        kinds = (INSTANCE_TYPE, CLUSTER_INSTANCE_TYPE)
        yield "vm.instance_type", _referred("instancetype", shape.instance_type, place, kinds)
    if shape.preference:
        yield (
            "vm.preference",
            _referred("preference", shape.preference, place, (PREFERENCE, CLUSTER_PREFERENCE)),
        )


def _network(text: str, place: str) -> Ref:
    namespace, _, name = text.rpartition("/")
    return Ref(ATTACHED_NETWORK, namespace or place, name)


def _referred(field: str, text: str, namespace: str, kinds: tuple[Kind, Kind]) -> Ref:
    given = reference(field, text)
    kind = next(each for each in kinds if each.kind == given["kind"])
    return Ref(kind, namespace if kind.namespaced else "", given["name"])
