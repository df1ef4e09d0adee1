"""Deploy: N VirtualMachines created together from the golden image, then all deleted, both measured.

One commit per batch holds both. Interrupted, it stops issuing, stores what is known as an
incomplete attempt, deletes the batch's VMs and goes.
"""

from dataclasses import replace
from typing import Any

from infra.cluster.kinds import PV, VM
from infra.cluster.port import Ref, Scope, list_all
from infra.manifests import run_selector
from infra.results.port import Attempt, Cell
from infra.world import World
from tasks.analysis.verdicts import worst
from tasks.batch import Batch
from tasks.brakes import stop_at_brake
from tasks.deletion import delete_vms, doomed_batch, volumes_of
from tasks.evidence import keep_evidence
from tasks.golden_image import CANARY_KEY, canary_s_of, ensure_golden_image
from tasks.heartbeats import intend_heartbeats
from tasks.leftovers import count_leftovers, deploy_traces, temporary_objects
from tasks.outcome import Circumstances, Outcome, outcome
from tasks.ownership import intend, know
from tasks.profile import Profile
from tasks.provisioning import Clones, Plan, explain, provision, source_of
from tasks.quiesce import PROBE_KEY, first_answer_s, quiesce
from tasks.requests import is_marked, resent
from tasks.shards.share import number_of

STAGE = "deploy"


def vm_names(run_id: str, size: int, repeat: int) -> list[str]:
    """Names of a deploy batch's VMs; attempts reuse them, so that results can be compared."""
    again = f"r{repeat}" if repeat > 1 else ""
    return [f"{run_id}-d{size}{again}-{i:04d}" for i in range(size)]


async def deploy_batch(world: World, profile: Profile, size: int, repeat: int = 1) -> dict[str, Any]:
    """Deploy and delete one batch, commit it, and return its headline.

    Raises:
        StageError: the golden image or an observer failed; what was measured is kept as incomplete.
    """
    attempt = world.results.begin(Cell(STAGE, str(size), repeat))
    clones = Clones(Batch(STAGE, vm_names(world.run_id, size, repeat)))
    done = False
    try:
        summary = await _measure(world, profile, attempt, clones)
        attempt.commit(summary, state=world.runtime.state())
        done = True
    finally:
        if not done:
            await _abandon(world, profile, attempt, clones.batch)
    stop_at_brake(summary["braked"])
    return summary


async def _measure(world: World, profile: Profile, attempt: Attempt, clones: Clones) -> dict[str, Any]:
    one_clone_s = canary_s_of(world, await ensure_golden_image(world, profile, attempt))
    intend_heartbeats(world, attempt, profile.namespace)
    await remove_vms(world, profile, STAGE)
    first_s, there = await first_answer_s(world, profile), await temporary_objects(world, profile)
    deployed = await _deploy(world, profile, attempt, (clones, one_clone_s))
    removed = await _delete(world, profile, attempt, (clones.batch, first_s, there))
    for each in (deployed, removed):
        for table, rows in each.tables.items():
            attempt.add(table, rows)
    keys = {PROBE_KEY: first_s, CANARY_KEY: one_clone_s, "braked": clones.batch.braked}
    return {**headline(deployed, removed), **keys}


async def _deploy(
    world: World, profile: Profile, attempt: Attempt, what: tuple[Clones, float | None]
) -> Outcome:
    clones, one_clone_s = what
    batch, section = clones.batch, profile.deploy
    batch.cell = (len(batch), attempt.number)
    refs = [Ref(VM, profile.namespace, name) for name in batch.names]
    intend(world, attempt, refs)
    plan = Plan(STAGE, len(batch), batch.names, section.rate_per_s, section.limit_s)
    gap_s = await provision(world, profile, plan, clones)
    know(attempt, [(ref, uid) for ref, uid in zip(refs, batch.uids, strict=True) if uid])
    await explain(world, profile, STAGE, batch)
    await keep_evidence(world, profile, attempt, batch)
    circumstances = Circumstances(
        size=len(batch),
        repeat=attempt.cell.repeat,
        limit_s=section.limit_s,
        end_step="deployed",
        study_step="pvc_bound",
        asked_rate_per_s=section.rate_per_s,
        gap_s=gap_s,
        clone_failures=clones.failures,
        clone_fallbacks=len(clones.copied),
        one_clone_s=one_clone_s,
    )
    made = outcome(batch, circumstances, profile.limits)
    return replace(made, vms=_with_sources(profile, made.vms))


def _with_sources(profile: Profile, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows of `vm_deploys`, each with the golden source that its VM clones."""
    return [{**row, "source": source_of(profile, number_of(row["vm"])).name} for row in rows]


async def _delete(
    world: World, profile: Profile, attempt: Attempt, before: tuple[Batch, float, frozenset[str]]
) -> Outcome:
    """Delete what a batch created, pass the quiesce gate, count what stayed."""
    created, first_s, there = before
    volumes = await volumes_of(world, profile, created.names)
    know(attempt, [(Ref(PV, "", volume.name), volume.uid) for volume in volumes])
    batch = doomed_batch({name: uid for name, uid in zip(created.names, created.uids, strict=True) if uid})
    batch.cell = (len(created), attempt.number)
    gap_s = await delete_vms(world, profile, batch, volumes)
    await keep_evidence(world, profile, attempt, batch)
    traces = deploy_traces(frozenset(volume.name for volume in volumes), frozenset(batch.uids), there)
    quiet = await quiesce(world, profile, lambda: count_leftovers(world, profile, traces), first_s)
    circumstances = Circumstances(
        size=len(created),
        repeat=attempt.cell.repeat,
        limit_s=profile.delete_limit_s,
        end_step="volume_gone",
        gap_s=gap_s,
        quiet=quiet,
    )
    return outcome(batch, circumstances, profile.limits)


def headline(*parts: Outcome) -> dict[str, Any]:
    """The summary of a cell: its first batch's headline, and the worst verdict of all its batches."""
    first = parts[0].batch
    keys = ("stage", "batch", "repeat", "n", "n_ok", "end_to_end_s", "study_end_to_end_s")
    return {
        **{key: first[key] for key in keys},
        f"{parts[1].batch['stage']}_s": parts[1].batch["end_to_end_s"],
        "verdict": worst(part.batch["verdict"] for part in parts),
        "reasons": [f"{part.batch['stage']}: {reason}" for part in parts for reason in part.batch["reasons"]],
    }


async def remove_vms(world: World, profile: Profile, stage: str) -> None:
    """Delete the VMs that an attempt of this stage left; not measured.

    Raises:
        InUse: another process works on the run by now, and the VMs are its own.
        StageError: another run has the cluster; cleaning, which follows, deletes them.
    """
    if world.results.sure is not None:
        world.results.sure()
    scope = Scope(VM, profile.namespace, run_selector(world.run_id, stage))
    found = (await resent(world, lambda: list_all(world.cluster, scope))).items
    vms = {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in found if is_marked(world, obj)}
    if vms:
        await delete_vms(world, profile, doomed_batch(vms), await volumes_of(world, profile, list(vms)))


async def _abandon(world: World, profile: Profile, attempt: Attempt, batch: Batch) -> None:
    """Store what is known of an interrupted batch, delete its VMs, commit it as incomplete."""
    if batch.released_at is not None:
        batch.close("lost", "interrupted")
        attempt.add("vm_deploys", _with_sources(profile, batch.rows(len(batch))))
    attempt.flush()
    await remove_vms(world, profile, STAGE)
    attempt.commit({"interrupted": True}, complete=False, state=world.runtime.state())
