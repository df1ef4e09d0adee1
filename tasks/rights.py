"""What each stage asks of the API server: the one table from which roles, preflight and tests are made.

Every row is a call that the stage's code makes; tests compare the table with the calls of a whole run, and
with the audit log of a real API server under these rights alone. A stage that finds no golden image makes
it: where that may happen, give it the rights of golden-image as well.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from infra.cluster.kinds import (
    CONTROLLER_REVISION,
    DATA_SOURCE,
    DATA_VOLUME,
    DESCHEDULER,
    EVENT,
    HYPERCONVERGED,
    KUBELET_CONFIG,
    KUBEVIRT,
    MACHINE_CONFIG_POOL,
    NAMESPACE,
    NETWORK_ENACTMENT,
    NODE,
    POD,
    PV,
    PVC,
    ROLE,
    ROLE_BINDING,
    SNAPSHOT,
    SNAPSHOT_CLASS,
    SNAPSHOT_CONTENT,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    TUNED_PROFILE,
    VM,
    VMI,
    VOLUME_ATTACHMENT,
    VOLUME_CLONE_SOURCE,
    Kind,
    kind_of,
)
from infra.cluster.lease import WHERE as LEASE_REF
from infra.world import WORLD_MARK
from tasks.knobs import End, Knob, Target, catalogue
from tasks.named_objects import named_objects
from tasks.profile import Profile

SUBRESOURCES = replace(VM, group="subresources.kubevirt.io")
"""How access to start and stop is granted: verb update in a group of its own."""
QUOTA = Kind("ResourceQuota", "", "v1", "resourcequotas")
ON_REAL_NODES = "a virtual kubelet says it in an annotation of its node"
GUESTS_OVER_SSH = "only guests over SSH are looked up"
INTERRUPTED = "only a series that was interrupted is looked for"
CLEANED = (VM, VMI, POD, DATA_VOLUME, DATA_SOURCE, SNAPSHOT, PVC, ROLE, ROLE_BINDING)
THERE_BEFORE = "an object that tuning made is deleted, one that was there is patched"
APPLIED = "an apply of what is not there is a create to the authorizer, and a patch in its log"
NOT_OK = "only VMs that are not ok are looked at"
NOT_A_CALL = "it is held, not used: who makes a Role or a clone needs it"


class Right(NamedTuple):
    """A verb on one kind, in one namespace ("": everywhere), perhaps on a named object alone.

    `optional`: without it the stage goes on and says what it could not see. `own`: needed only where a run
    makes its namespaces itself. `unseen`: why a run on virtual controllers never uses it.
    """

    verb: str
    kind: Kind
    namespace: str = ""
    subresource: str = ""
    name: str = ""
    optional: bool = False
    own: bool = False
    unseen: str = ""

    @property
    def resource(self) -> str:
        """As a rule names it: `virtualmachines/start`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


def rights_of(stages: Iterable[str], profile: Profile, *, own_namespaces: bool) -> list[Right]:
    """What these stages of a profile need, each right once.

    `own_namespaces`: the run makes and deletes its namespaces; else they are lent to it.
    """
    needed = [right for stage in stages for right in (*_looking(profile), *STAGES[stage](profile))]
    alike: dict[Right, list[Right]] = {}
    for right in needed:
        if own_namespaces or not right.own:
            alike.setdefault(right._replace(optional=False, own=False, unseen=""), []).append(right)
    return [
        plain._replace(
            optional=all(right.optional for right in rights),
            unseen=rights[0].unseen if all(right.unseen for right in rights) else "",
        )
        for plain, rights in alike.items()
    ]


def _may(verbs: str, *kinds: Kind, within: str = "", name: str = "", **more: bool | str) -> list[Right]:
    """Verbs on kinds in one namespace."""
    return [Right(verb, kind, within, name=name, **more) for verb in verbs.split() for kind in kinds]  # type: ignore[arg-type]


def _looking(profile: Profile) -> list[Right]:
    """A run holds the cluster's lease, and asks which world it is in and what decides its numbers."""
    mark, lease = WORLD_MARK, LEASE_REF
    return [
        *_may("create", lease.kind, within=lease.namespace),
        *_may("get patch", lease.kind, within=lease.namespace, name=lease.name),
        *_may("list", KUBEVIRT, optional=True),
        *_may("get", mark.kind, within=mark.namespace, name=mark.name, optional=True),
        *_may("get", STORAGE_CLASS, name=profile.vm.storage_class, optional=True),
    ]


def _places(profile: Profile) -> list[Right]:
    """Reads of the two namespaces; small ones also measure how quickly the API answers."""
    return [Right("get", NAMESPACE, place, name=place) for place in _namespaces(profile)]


def _namespaces(profile: Profile) -> list[str]:
    return list(dict.fromkeys((profile.namespace, profile.golden_namespace)))


def _preflight(profile: Profile) -> list[Right]:
    vms = profile.namespace
    tried = (VM, DATA_VOLUME, DATA_SOURCE, SNAPSHOT)
    classes = (STORAGE_CLASS, SNAPSHOT_CLASS, NODE, POD, MACHINE_CONFIG_POOL, DESCHEDULER)
    return [
        *_places(profile),
        *_may("list", VM, VMI, DATA_VOLUME, DATA_SOURCE, SNAPSHOT, QUOTA, within=vms, optional=True),
        *_may("list", *classes, optional=True),
        *_may("get", STORAGE_PROFILE, name=profile.vm.storage_class, optional=True),
        *_named(profile),
        # dry runs of what would be created, in `default` while the run's own namespace is not there
        *_may("create", *tried, within=vms, optional=True),
        *_may("create", *tried, within="default", optional=True, own=True),
    ]


def _named(profile: Profile) -> list[Right]:
    """What the profile names is looked up."""
    refs = [ref for _, ref in named_objects(profile)]
    return [Right("get", ref.kind, ref.namespace, name=ref.name, optional=True) for ref in refs]


def _golden_image(profile: Profile) -> list[Right]:
    vms, golden = profile.namespace, profile.golden_namespace
    return [
        *_golden_image_there(profile),
        *_may("create", NAMESPACE, own=True),
        *(_may("create", ROLE, ROLE_BINDING, within=golden) if golden != vms else []),
        Right("create", DATA_VOLUME, golden, "source", unseen=NOT_A_CALL),
        *_may("get create list watch", DATA_VOLUME, SNAPSHOT, DATA_SOURCE, within=golden),
        *_may("get", SNAPSHOT_CONTENT),
        # the canary
        *_may("create delete list watch", DATA_VOLUME, within=vms),
        *_may("get list watch", PVC, within=vms),
    ]


def _golden_image_there(profile: Profile) -> list[Right]:
    """To find that the golden image is there."""
    golden = profile.golden_namespace
    permission = (ROLE, ROLE_BINDING) if golden != profile.namespace else ()
    return [*_places(profile), *_may("get", DATA_SOURCE, *permission, within=golden)]


def _heartbeats(profile: Profile, *kinds: Kind) -> list[Right]:
    return _may("create patch delete get", *kinds, within=profile.namespace, optional=True)


def _provisioning(profile: Profile) -> list[Right]:
    """VirtualMachines come into being."""
    vms = profile.namespace
    return [
        *_golden_image_there(profile),
        *_heartbeats(profile, VM, PVC),
        *_may("create get list watch", VM, within=vms),
        *_may("list watch", DATA_VOLUME, PVC, within=vms),
        *_brakes(profile),
    ]


def _brakes(profile: Profile) -> list[Right]:
    """Nodes and the VMs of others are looked at while a batch is issued."""
    if profile.brakes.active is False:
        return []
    return _may("list watch", NODE, VMI, optional=True)


def _removal(profile: Profile) -> list[Right]:
    """VirtualMachines go, and their disks with them."""
    vms = profile.namespace
    return [
        *_heartbeats(profile, VM, PVC),
        *_may("delete get list watch", VM, within=vms),
        *_may("list watch", DATA_VOLUME, PVC, within=vms),
        *_may("list watch", PV),
    ]


def _evidence(profile: Profile) -> list[Right]:
    """What is kept of VMs that are not ok."""
    kinds = (VM, VMI, POD, DATA_VOLUME, PVC, EVENT)
    return _may("list", *kinds, within=profile.namespace, optional=True, unseen=NOT_OK)


def _deploy(profile: Profile) -> list[Right]:
    vms, golden = profile.namespace, profile.golden_namespace
    return [
        *_provisioning(profile),
        *_removal(profile),
        *_evidence(profile),
        # what a batch left
        *_may("list", VMI, POD, CONTROLLER_REVISION, within=vms),
        *_may("list", PVC, VOLUME_CLONE_SOURCE, within=golden),
        *_may("list", VOLUME_ATTACHMENT, SNAPSHOT_CONTENT),
    ]


def _starting(profile: Profile) -> list[Right]:
    return [Right("update", SUBRESOURCES, profile.namespace, "start")]


def _boot(profile: Profile) -> list[Right]:
    vms = profile.namespace
    return [
        *_provisioning(profile),
        *_heartbeats(profile, VMI, POD),
        *_starting(profile),
        *_evidence(profile),
        Right("update", SUBRESOURCES, vms, "stop"),
        *_may("get patch", VM, within=vms),
        *_may("list watch", VMI, POD, within=vms),
        *_may("list watch", NODE),
        *_may("list", POD),
    ]


def _guests(profile: Profile) -> list[Right]:
    """VMs whose guests are worked with: made, started, looked at, removed."""
    vms = profile.namespace
    looked_up = profile.guests.path != "none"
    return [
        *_golden_image_there(profile),
        *_removal(profile),
        *_starting(profile),
        *_may("create", VM, within=vms),
        *_may("list watch", VMI, within=vms),
        *(_may("get", VMI, within=vms, unseen=GUESTS_OVER_SSH) if looked_up else []),
    ]


def _io(profile: Profile) -> list[Right]:
    return [*_guests(profile), *_may("list", NODE, POD)]


def _latency(profile: Profile) -> list[Right]:
    return [*_guests(profile), *_may("get", VMI, within=profile.namespace, unseen=INTERRUPTED)]


def _clean(profile: Profile) -> list[Right]:
    vms, golden = profile.namespace, profile.golden_namespace
    found = [
        *_places(profile),
        *_may("delete", VM, VMI, POD, DATA_VOLUME, PVC, within=vms),
        *_may("delete", DATA_VOLUME, DATA_SOURCE, SNAPSHOT, ROLE, ROLE_BINDING, within=golden),
        *_may("list", PV, SNAPSHOT_CONTENT),
    ]
    for place in _namespaces(profile):
        found += _may("list", *CLEANED, within=place)
        found += _may("delete", NAMESPACE, within=place, name=place, own=True)
    return found


def _audit(profile: Profile, names: Iterable[str]) -> list[Right]:
    """Reads of these knobs."""
    knobs = [catalogue()[name] for name in names]
    reads = [right for knob in knobs if knob.target for right in _reads(profile, knob, knob.target)]
    return [right._replace(optional=True) for right in reads]


def _reads(profile: Profile, knob: Knob, target: Target) -> list[Right]:
    kind = kind_of(target.api_version, target.kind)
    listed = target.name == "*" or target.creates
    is_end = any(end.reader != "kubelet" and not end.name for end in knob.ends)
    found = [right for end in knob.ends for right in _end(end, kind, target)]
    found += _may("list", kind, within=target.namespace) if listed else []
    return [*found, *_on(profile, target, "get")] if is_end or not listed else found


def _on(profile: Profile, target: Target, verbs: str, unseen: str = "") -> list[Right]:
    """Verbs on the object of a target; on all of the kind where it is whichever there is."""
    name = "" if target.name == "*" else target.name.replace("{storage_class}", profile.vm.storage_class)
    kind = kind_of(target.api_version, target.kind)
    return _may(verbs, kind, within=target.namespace, name=name, unseen=unseen)


def _end(end: End, kind: Kind, target: Target) -> list[Right]:
    """What reading a value in force takes, where that is another object than the one that is set."""
    if end.reader == "kubelet":
        return [*_may("list", NODE), Right("get", NODE, subresource="proxy", unseen=ON_REAL_NODES)]
    kind = kind_of(end.api_version, end.kind) if end.kind else kind
    if end.name == "*":
        return _may("list", kind, within=end.namespace)
    namespace = (end.namespace or target.namespace) if kind.namespaced else ""
    return _may("get", kind, within=namespace, name=end.name) if end.name else []


def _tuning(profile: Profile) -> list[Right]:
    traps = _may("list", MACHINE_CONFIG_POOL, KUBELET_CONFIG, HYPERCONVERGED, optional=True)
    found = [*_audit(profile, catalogue()), *traps]
    for target in _asked(profile) if profile.tuning.mode == "apply" else []:
        found += [*_on(profile, target, "get patch"), *_ROLL_OUTS[target.rollout](target)]
        found += _on(profile, target, "create", APPLIED) if target.creates else []
    return found


def _revert(profile: Profile) -> list[Right]:
    found = _audit(profile, profile.tuning.knobs)
    for target in _asked(profile):
        found += [*_on(profile, target, "get"), *_ROLL_OUTS[target.rollout](target)]
        found += _on(profile, target, "delete") if target.creates else []
        found += _on(profile, target, "patch", THERE_BEFORE if target.creates else "")
    return found


def _asked(profile: Profile) -> list[Target]:
    targets = [catalogue()[name].target for name in profile.tuning.knobs]
    return [target for target in targets if target is not None]


_ROLL_OUTS: dict[str, Callable[[Target], list[Right]]] = {
    "": lambda _: [],
    "machine-config-pool": lambda _: _may("list watch", MACHINE_CONFIG_POOL),
    "hyperconverged": lambda target: _may("list watch", HYPERCONVERGED, within=target.namespace),
    "tuned": lambda target: _may("list watch", TUNED_PROFILE, within=target.namespace),
    "enactments": lambda _: [*_may("list", NODE), *_may("list watch", NETWORK_ENACTMENT)],
}

STAGES: dict[str, Callable[[Profile], list[Right]]] = {
    "preflight": _preflight,
    "tuning": _tuning,
    "golden-image": _golden_image,
    "deploy": _deploy,
    "boot": _boot,
    "io": _io,
    "latency": _latency,
    "report": lambda _: [],
    "clean": _clean,
    "revert": _revert,
}
"""Stage to its rights, those of opening a world aside."""
