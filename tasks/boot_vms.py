"""The VirtualMachines of the boot storms: as many as the largest storm needs, halted.

They are made once (not measured), started and stopped by every storm, and deleted by `clean`.
"""

from random import Random
from typing import NamedTuple

from infra.cluster.kinds import VM
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import StageError
from infra.manifests import run_selector
from infra.results.port import Attempt
from infra.world import World
from tasks.batch import Batch
from tasks.brakes import stop_at_brake
from tasks.golden_image import ensure_golden_image
from tasks.ownership import intend, know
from tasks.profile import Profile
from tasks.provisioning import Clones, Plan, provision
from tasks.requests import is_marked, resent
from tasks.stopping import STAGE, halt, running_instances, stop_vms


class BootVm(NamedTuple):
    """One halted VM; `ordinal` is the number of its next start, `broken` why it cannot be started.

    A start and a stop each raise the generation of a VM that nobody else edits, from 1 at creation.
    """

    name: str
    uid: str
    ordinal: int
    broken: str = ""


def boot_names(run_id: str, profile: Profile) -> list[str]:
    """Names of the boot VMs of a run."""
    return [f"{run_id}-b-{i:04d}" for i in range(max(profile.boot.batches))]


def chosen(vms: list[BootVm], run_id: str, size: int, repeat: int) -> list[BootVm]:
    """The VMs of one storm: drawn by run, size and repeat alone, so that a new attempt starts the same."""
    return sorted(Random(f"{run_id}/boot/{size}/{repeat}").sample(vms, size))


async def ensure_boot_vms(world: World, profile: Profile, attempt: Attempt) -> list[BootVm]:
    """Make sure that all boot VMs exist and are halted.

    Raises:
        StageError: a name is taken by somebody else's VM, or a VM could not be halted.
    """
    names = boot_names(world.run_id, profile)
    there = await _existing(world, profile)
    missing = [name for name in names if name not in there]
    made = Batch("deploy", missing)
    if missing:
        await _create(world, profile, attempt, made)
        there = await _existing(world, profile)
    if await _halt_all(world, profile, there):
        there = await _existing(world, profile)
    gone = [name for name in names if name not in there]
    if gone:
        others = f" and {len(gone) - 1} others" if len(gone) > 1 else ""
        raise StageError(
            f"VirtualMachine {profile.namespace}/{gone[0]}{others} cannot be made: "
            f"{_why_not(made, gone[0], profile.deploy.limit_s)}"
        )
    return [_boot_vm(there[name]) for name in names]


def _why_not(made: Batch, name: str, limit_s: float) -> str:
    i = made.index.get(name)
    if i is None:
        return "it was deleted by somebody else"
    return made.reason[i] or f"not within deploy.limit_s = {limit_s:g} s"


def _boot_vm(vm: Object) -> BootVm:
    meta = vm["metadata"]
    status = (vm.get("status") or {}).get("printableStatus")
    broken = (
        "its disk could not be cloned: VirtualMachine DataVolumeError" if status == "DataVolumeError" else ""
    )
    return BootVm(meta["name"], meta["uid"], (meta["generation"] + 1) // 2, broken)


async def _existing(world: World, profile: Profile) -> dict[str, Object]:
    scope = Scope(VM, profile.namespace, run_selector(world.run_id, STAGE))
    found = (await resent(world, lambda: list_all(world.cluster, scope))).items
    return {obj["metadata"]["name"]: obj for obj in found if is_marked(world, obj)}


async def _create(world: World, profile: Profile, attempt: Attempt, batch: Batch) -> None:
    """Deploy VMs as a deploy batch does; one whose clone fails stays, and fails in its storm."""
    await ensure_golden_image(world, profile, attempt)
    refs = [Ref(VM, profile.namespace, name) for name in batch.names]
    intend(world, attempt, refs)
    plan = Plan(STAGE, max(profile.boot.batches), batch.names, None, profile.deploy.limit_s)
    await provision(world, profile, plan, Clones(batch))
    know(attempt, [(ref, uid) for ref, uid in zip(refs, batch.uids, strict=True) if uid])
    stop_at_brake(batch.braked)


async def _halt_all(world: World, profile: Profile, vms: dict[str, Object]) -> bool:
    """Stop what an interrupted storm left running; returns whether there was any such VM."""
    running = await running_instances(world, profile)
    idle = [name for name in vms if name not in running and not _is_halted(vms[name])]
    await halt(world, profile, idle)
    if not running:
        return bool(idle)
    batch = Batch("stop", sorted(running))
    await stop_vms(world, profile, batch)
    left = batch.where("timeout", "failed")
    if left:
        raise StageError(
            f"VirtualMachine {profile.namespace}/{batch.names[left[0]]} cannot be halted: look at it"
        )
    return True


def _is_halted(vm: Object) -> bool:
    return bool(vm["spec"].get("runStrategy") == "Halted")
