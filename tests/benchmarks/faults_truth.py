"""What a step of a run recorded, beside what the virtual cluster knows of itself: steps, and disturbances.

Attached to the world of every step: the store's log and the machines tell when a step really happened, the
weather tells what it did to the run's requests, watches and nodes. Nothing of it passes through an observer.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from infra.cluster.kinds import DATA_VOLUME, POD, PVC, VM, VMI, VOLUME_CLONE_SOURCE, Kind
from infra.cluster.virtual.faults import Fault, Moment
from infra.errors import Throttled, Unavailable
from infra.manifests import STAGE_LABEL
from infra.results.port import Cell, Commit
from infra.results.read import read_part
from infra.world import World, WorldSpec, open_world
from tasks.golden_image import CANARY_KEY, EXPECTED_CLONE
from tasks.leftovers import TEMPORARY
from tasks.profile import Limits
from tasks.records import STEPS, VM_REASONS, VM_TABLES
from tests.unit.observers.truth import Checked, Truth, compare, released_at_ns, worst

OF_A_BATCH = frozenset({"create", "delete", "start", "stop"})
"""Requests about VMs with which a batch is driven; heartbeats are patches."""
END = {"deploy": "deployed", "delete": "volume_gone", "boot": "ssh_ready", "stop": "halted"}
NS = 1e9
Row = dict[str, Any]


@dataclass
class Span:
    """A measured batch, and what the plan did to it: answers of each kind, faults with when they began."""

    moment: Moment
    since_ns: int
    until_ns: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    begun: dict[str, tuple[int, Fault]] = field(default_factory=dict)

    @property
    def length_s(self) -> float:
        """From the release to the end of the batch."""
        return (self.until_ns - self.since_ns) / NS


class Injected:
    """The weather of a world, written down; a world without a fault plan has none."""

    def __init__(self, world: World) -> None:
        inside: Any = world.runtime
        self.spans: list[Span] = []
        self._loop = inside.loop
        if inside._weather is not None:
            self._listen(inside._weather)

    def of(self, stage: str) -> Span:
        """The last batch of a stage; of a calm world one to which nothing happened."""
        found = [span for span in self.spans if span.moment.stage == stage]
        return found[-1] if found else Span(Moment(stage, 0, 1), 0)

    def _listen(self, weather: Any) -> None:
        measures, measured, begin, request = (
            weather.measures,
            weather.measured,
            weather._begin,
            weather.request,
        )

        def released(moment: Moment) -> None:
            self.spans.append(Span(moment, self._loop.now_ns))
            measures(moment)

        def over() -> None:
            self.spans[-1].until_ns = self._loop.now_ns
            measured()

        def began(number: int, fault: Fault, turn: int) -> None:
            if turn == weather._turn:
                self.spans[-1].begun[fault.kind] = self._loop.now_ns, fault
            begin(number, fault, turn)

        async def asked(verb: str, kind: Kind) -> None:
            try:
                await request(verb, kind)
                self._count(verb, kind, "carried out")
            except (Throttled, Unavailable) as error:
                self._count(verb, kind, "away" if "refused" in str(error) else type(error).__name__)
                raise

        weather.measures, weather.measured, weather._begin, weather.request = released, over, began, asked

    def _count(self, verb: str, kind: Kind, answer: str) -> None:
        if self.spans and kind is VM and verb in OF_A_BATCH:
            self.spans[-1].answers[answer] += 1


def disturbances(
    span: Span, truth: Truth, batch: Row, vms: list[Row], limits: Limits
) -> Iterator[tuple[str, float, float]]:
    """Reason, how much of it there was, and its threshold: for everything that a plan can do to a batch."""
    begun, requests = span.begun, max(span.answers.total(), 1)

    def lasted_s(kind: str) -> float:
        if kind not in begun:
            return 0.0
        since_ns, fault = begun[kind]
        return min(fault.for_s, (span.until_ns - since_ns) / NS)

    def amount(kind: str, what: str) -> float:
        return float(getattr(begun[kind][1], what)) if kind in begun else 0.0

    yield "vm_not_ok", _not_ok(truth, batch, vms), limits.vm_not_ok_degraded
    yield "watch_gap", lasted_s("watch-gone"), limits.watch_gap_s
    yield "throttled", span.answers["Throttled"] / requests, limits.throttled_share
    yield "server_errors", span.answers["Unavailable"] / requests, limits.server_errors_share
    yield "api_unavailable", lasted_s("api-away"), limits.api_unavailable_s
    is_long = lasted_s("api-slow") > span.length_s / 2
    yield "api_slow", amount("api-slow", "answer_s") if is_long else 0.0, limits.api_slow_s
    yield "node_lost", amount("node-lost", "nodes"), limits.nodes_lost
    yield "foreign_load", amount("foreign-load", "pods"), limits.foreign_pods
    if batch["stage"] == "deploy":
        yield from _of_clones(truth, batch, vms, limits)


def _of_clones(
    truth: Truth, batch: Row, vms: list[Row], limits: Limits
) -> Iterator[tuple[str, float, float]]:
    disks = [f"{vm['vm']}-root" for vm in vms]
    failed = sum(
        any(facts and facts["phase"] == "Failed" for _, facts in truth.log.get((DATA_VOLUME, disk), []))
        for disk in disks
    )
    kinds = [
        {facts["clone"] for _, facts in truth.log.get((PVC, disk), []) if facts and facts["phase"] == "Bound"}
        for disk in disks
    ]
    yield "clone_failed", failed, limits.clones_failed
    yield "clone_fallback", sum(bool(kind - {None, EXPECTED_CLONE}) for kind in kinds), limits.clones_copied
    released_ns = released_at_ns(batch)
    bound = [truth.of("deploy", vm["vm"], released_ns, released_ns)["pvc_bound"] for vm in vms]
    ranked = sorted(ns for ns in bound if ns is not None)
    tenth = len(ranked) // 10
    if tenth == 0 or batch[CANARY_KEY] is None:
        return
    pace_s = (ranked[-1 - tenth] - ranked[tenth]) / NS / (len(ranked) - 1 - 2 * tenth)
    yield "slow_storage", pace_s, limits.slow_storage_ratio * batch[CANARY_KEY]


def _not_ok(truth: Truth, batch: Row, vms: list[Row]) -> int:
    """VMs that did not reach the end point within the limit."""
    released_ns, end = released_at_ns(batch), END[batch["stage"]]
    latest_ns = released_ns + batch["limit_s"] * NS
    moments = (truth.of(batch["stage"], vm["vm"], released_ns, released_ns)[end] for vm in vms)
    return sum(ns is None or ns > latest_ns for ns in moments)


def left_behind(world: World, stage: str) -> int:
    """Objects that a batch of VMs should have taken with it, by a look into the store."""
    store: Any = world.runtime.server.store  # type: ignore[attr-defined]
    kinds = (VM, VMI, POD, DATA_VOLUME, PVC) if stage == "deploy" else (VMI, POD)
    ours: int = sum(
        (obj["metadata"].get("labels") or {}).get(STAGE_LABEL) == stage
        for kind in kinds
        for obj in store.objects(kind).values()
    )
    temporary: int = sum(name.startswith(TEMPORARY) for _, name in store.objects(PVC)) + len(
        store.objects(VOLUME_CLONE_SOURCE)
    )
    return ours + (temporary if stage == "deploy" else 0)


@contextmanager
def beside_the_truth(spec: WorldSpec, notes: Path, limits: Limits) -> Iterator[World]:
    """Open a world, and write down what its step recorded beside what really was: one file per step."""
    with open_world(spec) as world:
        truth, injected = Truth(world), Injected(world)
        before = len(world.results.commits())
        yield world
        for commit in world.results.commits()[before:]:
            if commit.cell.stage in ("deploy", "boot"):
                found = [
                    _noted(world, commit, batch, truth, injected.of(batch["stage"]), limits)
                    for batch in _rows(world, commit, "batches")
                ]
                notes.mkdir(parents=True, exist_ok=True)
                (notes / _name(commit.cell)).write_bytes(orjson.dumps(found))


def _name(cell: Cell) -> str:
    return f"{cell.stage}-{int(cell.cell):05d}-{cell.repeat}.json"


def _rows(world: World, commit: Commit, table: str) -> list[Row]:
    parts = commit.parts.get(table, [])
    return [row for part in parts for row in read_part(world.results.store, part).to_pylist()]


def _noted(
    world: World, commit: Commit, batch: Row, truth: Truth, span: Span, limits: Limits
) -> dict[str, Any]:
    """All there is to say of one measured batch."""
    stage = batch["stage"]
    vms = _rows(world, commit, VM_TABLES[stage])
    batch = {CANARY_KEY: commit.summary.get(CANARY_KEY), **batch}
    checked = Checked()
    compare(checked, truth, batch, vms)
    causes = [*disturbances(span, truth, batch, vms, limits)]
    if stage in ("delete", "stop"):
        left = left_behind(world, "deploy" if stage == "delete" else "boot")
        causes.append(("not_quiescent", left, limits.leftovers))
    return {
        "stage": stage,
        "batch": batch["batch"],
        "n": batch["n"],
        "not_ok": batch["n"] - batch["n_ok"],
        "named": sorted({reason.partition(":")[0] for reason in batch["reasons"]}),
        "injected": sorted(code for code, found, limit in causes if found > limit),
        "amounts": {code: [round(float(found), 3), limit] for code, found, limit in causes if found},
        "faults": sorted(_faults(vms, batch)),
        "checked": sum(len(bounds) for bounds in checked.values()),
        "wrong": checked.wrong,
        "bounds": {
            step.partition(" ")[2]: [len(checked[step]), p99, most] for step, p99, most in worst(checked)
        },
    }


def _faults(vms: list[Row], batch: Row) -> Iterator[str]:
    """What is wrong with the records themselves: one per VM, null where nothing was seen."""
    stage, limit_s = batch["stage"], batch["limit_s"]
    if len({vm["vm"] for vm in vms}) != len(vms) or len(vms) != batch["n"]:
        yield f"{len(vms)} records for {batch['n']} VMs"
    for vm in vms:
        if (vm["reason"] in VM_REASONS) != (vm["state"] != "ok"):
            yield f"{vm['vm']}: {vm['state']} with reason {vm['reason']}"
        values = {step: (vm[f"{step}_s"], vm[f"{step}_error_s"]) for step in STEPS[stage]}
        if (values[END[stage]][0] is not None) != (vm["state"] == "ok"):
            yield f"{vm['vm']}: {vm['state']} with {END[stage]} {values[END[stage]][0]}"
        for step, (value, error) in values.items():
            if (value is None) != (error is None):
                yield f"{vm['vm']}: {vm['state']} with {step} {value} ± {error}"
            if value is not None and vm["state"] != "ok" and value in (0.0, limit_s):
                yield f"{vm['vm']}: {step} is {value}, which is no observation"
