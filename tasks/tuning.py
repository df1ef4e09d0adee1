"""Tuning: what the profile wants of the cluster, compared with what it has; set where that is asked for.

An audit changes nothing. Applying remembers every field first, sets object by object (server-side apply,
a field manager per attempt), waits for the real roll-out, and reads the values in force at their end points.
What was set stays until `virtscale revert RUN`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from infra.cluster.kinds import KUBELET_CONFIG
from infra.cluster.port import Object, Ref
from infra.errors import InvalidRun, StageError
from infra.manifests import NONCE, RUN_LABEL
from infra.results.port import Attempt, Cell
from infra.world import World
from tasks.batch import NS
from tasks.knobs import FieldPath, Knob, Target, catalogue, rendered, warning_of
from tasks.profile import Profile
from tasks.requests import resent
from tasks.roll_out import Marks, pool_marks, pools_rolled_out, rolled_out
from tasks.tuning_look import Look, holds, shown, text_of, value_at
from tasks.tuning_snapshot import (
    Snapshot,
    field_before,
    is_in_force,
    new_snapshot,
    read_snapshot,
    remembered,
    write_snapshot,
)
from tasks.tuning_traps import traps

STAGE = "tuning"
VERIFY_LIMIT_S = 600.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
POOLS = "machine-config-pool"


class Proposal(NamedTuple):
    """One knob that is about to be set; `disturbance` says what that does to the cluster, empty: nothing."""

    knob: str
    object: str
    before: str | None
    desired: str
    disturbance: str

    def __str__(self) -> str:
        """In one line."""
        what = f"{self.knob} = {self.desired} on {self.object}"
        return f"{what}: {self.disturbance}" if self.disturbance else what


class Approval(NamedTuple):
    """The knobs that may be set, None: all is refused; `record` is kept: what was decided, when, by whom."""

    knobs: frozenset[str] | None
    record: dict[str, Any]


Approve = Callable[[list[Proposal]], Approval]


@dataclass(slots=True)
class Finding:
    """How one knob stands; a row of `knobs`.

    `status`: as-desired, differs, left (differs, and whoever was asked wants it so), applied, not-verified,
    not-applicable, by-hand, not-asked, trap.
    """

    knob: str
    status: str
    object: str = ""
    field: str = ""
    before: str | None = None
    desired: str | None = None
    effective: str | None = None
    note: str = ""

    def row(self) -> dict[str, Any]:
        """As it is stored."""
        return {name: getattr(self, name) or None for name in self.__slots__} | {"knob": self.knob}


@dataclass(slots=True)
class Change:
    """One object that has to be changed, and for which knobs."""

    ref: Ref
    target: Target
    knobs: list[tuple[Knob, Any]] = field(default_factory=list)


async def tuning(world: World, profile: Profile, approve: Approve) -> dict[str, Any]:
    """The stage: audit, or audit and apply; commits a row per knob of the catalogue.

    Raises:
        InvalidRun: the change was not approved; everything is as it was.
        StageError: a roll-out failed, or a value is not in force; what was set stays until `revert`.
    """
    attempt = world.results.begin(Cell(STAGE, "0"))
    findings = await audit(world, profile)
    changes = await _changes(world, profile, findings) if _applies(world, profile) else []
    record: dict[str, Any] = {}
    if changes and world.name != "virtual":
        approval = approve(_proposed(changes, findings))
        record = {"approval": approval.record}
        _refused_or_left(findings, approval, attempt)
        changes = _allowed(changes, approval)
    failed = await _applied(world, profile, (changes, findings), attempt) if changes else ""
    attempt.add("knobs", [finding.row() for finding in findings])
    summary = _summary(findings, _applies(world, profile)) | record
    attempt.commit(summary, complete=not failed, state=world.runtime.state())
    if failed:
        raise StageError(f"tuning: {failed}; what was set stays: virtscale revert {world.run_id}")
    return summary


async def proposals(world: World, profile: Profile) -> list[Proposal]:
    """What the stage would ask about if it ran now; reads only."""
    if world.name == "virtual" or not _applies(world, profile):
        return []
    findings = await audit(world, profile)
    return _proposed(await _changes(world, profile, findings), findings)


def _applies(world: World, profile: Profile) -> bool:
    return (profile.tuning.mode or ("apply" if world.name == "virtual" else "audit")) == "apply"


def _refused_or_left(findings: list[Finding], approval: Approval, attempt: Attempt) -> None:
    """Mark what is to be left as it is.

    Raises:
        InvalidRun: that is everything; the refusal is committed.
    """
    if approval.knobs is None:
        attempt.add("knobs", [finding.row() for finding in findings])
        attempt.commit({"stage": STAGE, "approval": approval.record}, complete=False)
        raise InvalidRun("tuning: not approved, nothing was changed; --set tuning.mode=audit only looks")
    for finding in findings:
        if finding.status == "differs" and finding.knob not in approval.knobs:
            finding.status = "left"


def _allowed(changes: list[Change], approval: Approval) -> list[Change]:
    """The changes without the knobs that are to be left."""
    kept = approval.knobs or frozenset()
    fewer = [Change(c.ref, c.target, [each for each in c.knobs if each[0].name in kept]) for c in changes]
    return [change for change in fewer if change.knobs]


def _summary(findings: list[Finding], applies: bool) -> dict[str, Any]:
    counts = {status: sum(f.status == status for f in findings) for status in ("as-desired", "applied")}
    open_ = sum(finding.status in ("differs", "left", "not-verified") for finding in findings)
    in_force = {f.knob: f.effective for f in findings if f.effective is not None and f.status != "trap"}
    return {
        "stage": STAGE,
        "mode": "apply" if applies else "audit",
        "as_desired": counts["as-desired"],
        "applied": counts["applied"],
        "differ": open_,
        "not_applicable": sum(finding.status == "not-applicable" for finding in findings),
        "traps": sum(finding.status == "trap" for finding in findings),
        "in_force": in_force,
    }


def look_at(world: World, profile: Profile) -> Look:
    """A fresh look at the cluster, with the profile's names."""
    names = {
        "storage_class": profile.vm.storage_class,
        "snapshot_class": profile.golden_image.snapshot_class,
    }
    return Look(world, names)


async def audit(world: World, profile: Profile) -> list[Finding]:
    """How every knob of the catalogue stands; reads only."""
    look = look_at(world, profile)
    findings = [await _audited(look, profile, knob) for knob in catalogue().values()]
    return findings + [Finding(name, "trap", object_, note=note) for name, object_, note in await traps(look)]


async def _audited(look: Look, profile: Profile, knob: Knob) -> Finding:
    asked = knob.name in profile.tuning.knobs
    desired = look.named(profile.tuning.knobs.get(knob.name))
    if knob.target is None:
        return Finding(knob.name, "by-hand", note=f"{knob.by_hand}; verify: {knob.verify}")
    finding = Finding(knob.name, "not-asked", field=".".join(knob.fields[0][0]))
    if asked:
        finding.desired, finding.note = text_of(desired), warning_of(knob, desired)
    ref = await look.target(knob.target)
    if ref is None:
        finding.status, finding.object = "not-applicable", knob.target.kind
        return finding
    found = await look.ends(knob, ref)
    finding.object, finding.before = str(ref), shown(knob, found)
    finding.effective = finding.before
    if asked:
        finding.status = "as-desired" if holds(knob, desired, found) else "differs"
    return finding


async def _changes(world: World, profile: Profile, findings: Iterable[Finding]) -> list[Change]:
    """The objects to set, in order, each with every knob of it that differs."""
    look = look_at(world, profile)
    wanted = {finding.knob for finding in findings if finding.status == "differs"}
    changes: dict[Ref, Change] = {}
    for knob in catalogue().values():
        target = knob.target
        ref = await look.target(target) if target is not None and knob.name in wanted else None
        if target is not None and ref is not None:
            change = changes.setdefault(ref, Change(ref, target))
            change.knobs.append((knob, look.named(profile.tuning.knobs[knob.name])))
    return list(changes.values())


def _proposed(changes: Iterable[Change], findings: Iterable[Finding]) -> list[Proposal]:
    """One for each knob, in the order in which they are set."""
    before = {finding.knob: finding.before for finding in findings}
    return [
        Proposal(
            knob.name,
            str(change.ref),
            before[knob.name],
            text_of(value),
            "; ".join(filter(None, (knob.disturbance, knob.irreversible))),
        )
        for change in changes
        for knob, value in change.knobs
    ]


async def _applied(
    world: World, profile: Profile, plan: tuple[list[Change], list[Finding]], attempt: Attempt
) -> str:
    """Set, wait, verify; what is not in force is told. Cancelled, what was set stays, and is committed so."""
    changes, findings = plan
    done = False
    try:
        await _remember(world, changes, findings)
        began = await _set(world, profile, (changes, f"virtscale-{world.run_id}-{attempt.number}"))
        failed = await _verified(world, profile, findings)
        done = True
        if failed and not began:
            return f"no roll-out began (does the selector match a pool?); {failed}"
        return failed
    finally:
        if not done:
            attempt.add("knobs", [finding.row() for finding in findings])
            attempt.commit({"interrupted": True}, complete=False, state=world.runtime.state())


async def _remember(world: World, changes: list[Change], findings: list[Finding]) -> None:
    """Put every field that will be set into the run's snapshot; what is in it already is left."""
    found = read_snapshot(world.results.store, world.run_id)
    snapshot: Snapshot = found if found is not None and is_in_force(found) else new_snapshot(world.run_id)
    before = {finding.knob: finding.before for finding in findings}
    look = Look(world, {})
    for change in changes:
        obj = await look.one(change.ref)
        entry = remembered(snapshot, change.ref, obj)
        for knob, value in change.knobs:
            if knob.name in entry["knobs"]:
                continue
            entry["knobs"][knob.name] = [
                field_before(obj, path, rendered(template, value)) for path, template in knob.fields
            ]
            snapshot["values"][knob.name] = value
            snapshot["found"][knob.name] = before[knob.name]
    write_snapshot(world.results.store, snapshot)


async def _set(world: World, profile: Profile, plan: tuple[list[Change], str]) -> bool:
    """Apply the objects group by group; False when a roll-out that had to begin did not.

    Each attempt is a field manager of its own: one that applied more before would take away what it
    now leaves out.
    """
    changes, manager = plan
    began = True
    for _, group in groupby(changes, key=lambda change: change.target.order):
        together = list(group)
        marks: Marks = {}
        if any(change.target.rollout == POOLS for change in together):
            marks = await pool_marks(world)
        for change in together:
            obj = await apply(world, manifest_of(world, change), manager)
            await rolled_out(world, obj, profile.tuning.limit_s)
        if marks:
            began &= await pools_rolled_out(world, marks, profile.tuning.limit_s)
    return began


async def apply(world: World, manifest: Object, manager: str) -> Object:
    """Server-side apply of fields that somebody else may own until now."""
    return await resent(world, lambda: world.cluster.apply(manifest, manager, force=True))


def manifest_of(world: World, change: Change) -> Object:
    """The fields to set, and around them the object itself where it is made for the run."""
    ref, target = change.ref, change.target
    meta: Object = {"name": ref.name} | ({"namespace": ref.namespace} if ref.namespace else {})
    manifest: Object = {"apiVersion": ref.kind.api_version, "kind": ref.kind.kind, "metadata": meta}
    if target.creates:
        manifest = _merged(target.body, manifest)
        manifest["metadata"] |= {"annotations": {NONCE: world.nonce}}
        manifest["metadata"]["labels"] = manifest["metadata"].get("labels", {}) | {RUN_LABEL: world.run_id}
    for knob, value in change.knobs:
        for path, template in knob.fields:
            manifest = _merged(manifest, nested(path, rendered(template, value)))
    return manifest


def nested(path: FieldPath, value: Any) -> Object:
    """`value` at a path, as nested tables."""
    for part in reversed(path):
        value = {part: value}
    tables: Object = value
    return tables


def _merged(first: Object, second: Object) -> Object:
    both = {key: first[key] for key in first.keys() & second.keys() if isinstance(first[key], dict)}
    return {**first, **second, **{key: _merged(table, second[key]) for key, table in both.items()}}


async def _verified(world: World, profile: Profile, findings: list[Finding]) -> str:
    """Read the values in force until they are as desired, at most ten minutes; the text names what is not."""
    start_ns, pause_s = world.clock.now_ns(), FIRST_PAUSE_S
    waiting = [finding for finding in findings if finding.status == "differs"]
    while True:
        look = look_at(world, profile)
        for finding in waiting:
            await _verify(look, profile, finding)
        waiting = [finding for finding in waiting if finding.status != "applied"]
        if not waiting or (world.clock.now_ns() - start_ns) / NS > VERIFY_LIMIT_S:
            break
        await world.clock.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
    return "; ".join(f"{f.knob} is {f.effective}, not {f.desired}" for f in waiting)


async def _verify(look: Look, profile: Profile, finding: Finding) -> None:
    knob, desired = catalogue()[finding.knob], look.named(profile.tuning.knobs[finding.knob])
    ref = await look.target(knob.target) if knob.target else None
    if ref is None:
        finding.status = "not-verified"
        return
    found = await look.ends(knob, ref)
    in_force = holds(knob, desired, found)
    finding.effective = text_of(desired) if in_force else shown(knob, found)
    finding.status = "applied" if in_force else "not-verified"
    if not in_force and ref.kind is KUBELET_CONFIG:
        said = value_at(await look.one(ref), ("status", "conditions")) or []
        finding.note = "; ".join(str(each.get("message", "")) for each in said)
