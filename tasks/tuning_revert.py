"""Undo what a run's tuning set: every field as it was, what was made for the run gone.

What somebody else has changed since is left and named, and so is what cannot be taken back.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from infra.cluster.port import Object, Ref
from infra.errors import InvalidRun, NotFound
from infra.results.port import Cell
from infra.world import World
from tasks.batch import NS
from tasks.knobs import Knob, catalogue, rendered
from tasks.ownership import find
from tasks.profile import Profile
from tasks.requests import is_marked, resent
from tasks.roll_out import pool_marks, pools_rolled_out, rolled_out
from tasks.tuning import FIRST_PAUSE_S, LONGEST_PAUSE_S, VERIFY_LIMIT_S, Finding, apply, look_at, nested
from tasks.tuning_look import Look, shown, text_of, value_at
from tasks.tuning_snapshot import (
    FieldBefore,
    ObjectBefore,
    Snapshot,
    is_in_force,
    read_snapshot,
    ref_of_before,
    write_snapshot,
)

STAGE = "revert"


@dataclass(slots=True)
class _Work:
    """A revert under way: what stays although it should not, by knob."""

    world: World
    profile: Profile
    snapshot: Snapshot
    left: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


async def revert(
    world: World, profile: Profile, approve: Callable[[list[str]], bool]
) -> list[dict[str, Any]] | None:
    """Restore what the run's tuning changed; the rows of `knobs`, or None when nothing is in force.

    Raises:
        InvalidRun: it was not approved; nothing was changed.
        StageError: a roll-out failed.
    """
    snapshot = read_snapshot(world.results.store, world.run_id)
    if snapshot is None or not is_in_force(snapshot):
        return None
    if world.name != "virtual" and not approve(_plan(snapshot)):
        raise InvalidRun("revert: not approved, nothing was changed")
    attempt = world.results.begin(Cell(STAGE, "0"))
    work = _Work(world, profile, snapshot)
    await _restore(work)
    rows = [finding.row() for finding in await _checked(work)]
    attempt.add("knobs", rows)
    attempt.commit({"stage": STAGE, "knobs": len(rows)}, state=world.runtime.state())
    write_snapshot(world.results.store, {**snapshot, "reverted": True})
    return rows


def _plan(snapshot: Snapshot) -> list[str]:
    """One line per knob: what it goes back to, and what that does to the cluster."""
    return [
        f"{name} back to {snapshot['found'][name] or 'its default'} on {ref_of_before(entry)}"
        + (f": {catalogue()[name].disturbance}" if catalogue()[name].disturbance else "")
        for entry in reversed(snapshot["objects"])
        for name in entry["knobs"]
    ]


def _order(entry: ObjectBefore) -> int:
    target = catalogue()[next(iter(entry["knobs"]))].target
    return target.order if target else 0


async def _restore(work: _Work) -> None:
    """Object by object, the last that was set first; pools roll out once per group."""
    world, limit_s = work.world, work.profile.tuning.limit_s
    entries = sorted((each for each in work.snapshot["objects"] if each["knobs"]), key=_order, reverse=True)
    for _, group in groupby(entries, key=_order):
        together = list(group)
        rolls = any(_rolls_pools(entry) for entry in together)
        marks = await pool_marks(world) if rolls else {}
        before = len(work.changed)
        for entry in together:
            await _restore_object(work, entry)
        if rolls and len(work.changed) > before:
            await pools_rolled_out(world, marks, limit_s)


def _rolls_pools(entry: ObjectBefore) -> bool:
    target = catalogue()[next(iter(entry["knobs"]))].target
    return target is not None and target.rollout == "machine-config-pool"


async def _restore_object(work: _Work, entry: ObjectBefore) -> None:
    ref = ref_of_before(entry)
    obj = await find(work.world, ref)
    if obj is None:
        if entry["existed"]:
            work.left |= dict.fromkeys(entry["knobs"], f"{ref} is gone")
        return
    if not entry["existed"]:
        await _remove(work, entry, obj)
        return
    for name, fields in entry["knobs"].items():
        irreversible = catalogue()[name].irreversible
        if irreversible and value_at(obj, tuple(fields[0]["path"])) == fields[0]["set"]:
            work.left[name] = irreversible
            continue
        for each in fields:
            obj = await _restore_field(work, (name, ref), each, obj)
    await rolled_out(work.world, obj, work.profile.tuning.limit_s)


async def _restore_field(work: _Work, what: tuple[str, Ref], each: FieldBefore, obj: Object) -> Object:
    """Put one field back; returns the object as it is then."""
    name, ref = what
    path, now = tuple(each["path"]), value_at(obj, tuple(each["path"]))
    if now == each["before"]:
        return obj
    if now != each["set"]:
        work.left[name] = f"somebody else set {'.'.join(path)} to {text_of(now)} since; it is left"
        return obj
    change = nested(path, each["before"])
    if each["before"] is None:
        change = nested(path[: _cut(obj, path, each["existed"])], None)
    work.changed.add(name)
    return await resent(work.world, lambda: work.world.cluster.patch(ref, change))


def _cut(obj: Object, path: tuple[str, ...], existed: int) -> int:
    """How much of a path to remove: tables above the field go, too, when they were made for it alone."""
    cut = len(path)
    while cut - 1 > existed and len(value_at(obj, path[: cut - 1]) or {}) == 1:
        cut -= 1
    return cut


async def _remove(work: _Work, entry: ObjectBefore, obj: Object) -> None:
    """Delete an object that was made for the run, after undoing what its deletion would not."""
    ref = ref_of_before(entry)
    if not is_marked(work.world, obj):
        work.left |= dict.fromkeys(entry["knobs"], f"{ref} is no longer this run's; it is left")
        return
    for name in entry["knobs"]:
        await _undo(work, (catalogue()[name], ref))
    try:
        await resent(work.world, lambda: work.world.cluster.delete(ref, uid=obj["metadata"]["uid"]))
    except NotFound:
        return
    work.changed |= set(entry["knobs"])


async def _undo(work: _Work, what: tuple[Knob, Ref]) -> None:
    knob, ref = what
    if not knob.undo:
        return
    value = work.snapshot["values"][knob.name]
    value = {**value, **{part: rendered(template, value) for part, template in knob.undo.items()}}
    manifest: Object = {
        "apiVersion": ref.kind.api_version,
        "kind": ref.kind.kind,
        "metadata": {"name": ref.name},
    }
    spec = {path[-1]: rendered(template, value) for path, template in knob.fields}
    body = knob.target.body.get("spec", {}) if knob.target else {}
    undone = {**manifest, "spec": {**body, **spec}}
    obj = await apply(work.world, undone, f"virtscale-{work.world.run_id}-revert")
    await rolled_out(work.world, obj, work.profile.tuning.limit_s)


async def _checked(work: _Work) -> list[Finding]:
    """Read every value in force again, until it is what it was before or ten minutes have passed."""
    world, snapshot = work.world, work.snapshot
    start_ns, pause_s = world.clock.now_ns(), FIRST_PAUSE_S
    while True:
        look = look_at(world, work.profile)
        findings = [await _check(work, look, name) for name in snapshot["found"]]
        waiting = [f for f in findings if f.status == "not-reverted" and f.knob not in work.left]
        if not waiting or (world.clock.now_ns() - start_ns) / NS > VERIFY_LIMIT_S:
            return findings
        await world.clock.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 2)


async def _check(work: _Work, look: Look, name: str) -> Finding:
    knob, before = catalogue()[name], work.snapshot["found"][name]
    ref = await look.target(knob.target) if knob.target else None
    found = shown(knob, await look.ends(knob, ref)) if ref else None
    finding = Finding(
        name,
        "reverted" if found == before and name not in work.left else "not-reverted",
        object=str(ref) if ref else "",
        field=".".join(knob.fields[0][0]),
        before=text_of(work.snapshot["values"][name]),
        desired=before,
        effective=found,
        note=work.left.get(name, ""),
    )
    if knob.undo and finding.status == "not-reverted" and found is None:
        # the policy that showed the value is gone, and what it undid before that was enacted
        finding.status, finding.note = "reverted", f"by policy: {text_of(knob.undo)}"
    return finding
