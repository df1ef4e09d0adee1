"""What a killed run leaves behind beside its VirtualMachines."""

from infra import manifests
from infra.cluster.kinds import DATA_VOLUME, VM
from infra.cluster.port import Ref
from infra.results.port import Cell
from infra.world import World
from tasks.golden_image import root_disk, sources_of
from tasks.heartbeats import heartbeat_refs, intend_heartbeats
from tasks.ownership import intend, mark_of
from tasks.profile import Profile


def make_leftovers(world: World, profile: Profile) -> None:
    """Heartbeats and the canary, in the ledger and on the cluster."""
    attempt, where = world.results.begin(Cell("boot", "2")), profile.namespace
    intend_heartbeats(world, attempt, where)
    canary = f"{world.run_id}-canary"
    intend(world, attempt, [Ref(DATA_VOLUME, where, canary)])
    boot, image = mark_of(world, "boot"), mark_of(world, "golden-image")
    refs = [ref for ref in heartbeat_refs(world.run_id, where) if ref.kind is not VM]
    hearts = [manifests.heartbeat(ref.kind.kind, ref.name, where, boot) for ref in refs]
    clone = manifests.clone_data_volume(canary, where, image, root_disk(profile), sources_of(profile)[0])
    for manifest in (*hearts, clone):
        world.run(world.cluster.create(manifest))
