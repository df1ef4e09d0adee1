"""A recorder fed with any order of events, lags and interruptions: what it records is within its bound."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cluster.kinds import DATA_VOLUME, PVC, VM
from infra.cluster.port import Object, Scope, WatchBatch, WatchEvent
from infra.cluster.reflector import Gap, Listed, Notice
from tasks.batch import NS, Batch
from tasks.observing import BEAT, REPLAY_S, Observers, Stream, View
from tasks.provisioning import Clones
from tests.unit.stages.fakes import StepClock

MS = 1_000_000
LAG_MS = 200
"""No event is later than that, and a beat has measured it: a bound cannot know more than was measured."""
OPEN_MS = 600
"""How long a watch that ended stays closed at most."""
END_MS = 40_000
NAMES = ("a", "b")
STEPS = ("pvc_bound", "datavolume_succeeded", "deployed")


class Event(NamedTuple):
    """What happens at `at_ms`: an object of a kind comes into a state, is beaten, or its watch is lost."""

    at_ms: int
    kind: int
    vm: int
    holds: bool
    what: str
    lag_ms: int


events = st.lists(
    st.builds(
        Event,
        at_ms=st.integers(1, 6_000),
        kind=st.integers(0, 2),
        vm=st.integers(0, 1),
        holds=st.booleans(),
        what=st.sampled_from(("state",) * 6 + ("beat",) * 12 + ("end", "gone", "break")),
        lag_ms=st.integers(0, LAG_MS),
    ),
    min_size=30,
    max_size=90,
)


class Server:
    """What is true, and when: objects by kind and VM."""

    def __init__(self) -> None:
        self.holds = [[False, False] for _ in range(3)]
        self.left_ms = [-END_MS, -END_MS]
        self.true: dict[tuple[str, int], int] = {}

    def change(self, event: Event) -> bool:
        """Carry out a change; False when it is none, or one that is quicker than a clone can be."""
        kind, vm = event.kind, event.vm
        if kind and not event.holds:
            return False  # a disk that succeeded or was bound stays so
        if kind and event.at_ms - self.left_ms[vm] <= LAG_MS + OPEN_MS:
            return False
        if not kind and self.holds[0][vm] and not event.holds:
            self.left_ms[vm] = event.at_ms
        self.holds[kind][vm] = event.holds
        step = ("", "datavolume_succeeded", "pvc_bound")[kind]
        if step:
            self.true.setdefault((step, vm), event.at_ms)
        if all(self.holds[each][vm] for each in range(3)):
            self.true.setdefault(("deployed", vm), event.at_ms)
        return True

    def shown(self, kind: int, vm: int) -> Object:
        """The object as it is now."""
        holds, name = self.holds[kind][vm], NAMES[vm] if kind == 0 else f"{NAMES[vm]}-root"
        fields = {"printableStatus": "Stopped" if holds else "Provisioning"}
        if kind:
            fields = {"phase": ("Succeeded", "Bound")[kind - 1] if holds else "Pending"}
        return {"metadata": {"name": name, "annotations": {}}, "spec": {}, "status": fields}


class Watch:
    """One kind's way to the recorder: in order, each event some lag after it happened, with interruptions."""

    def __init__(self, kind: int, stream: Stream) -> None:
        self.kind = kind
        self.stream = stream
        self.waiting: list[tuple[int, Object]] = []
        self.closed_until_ms = 0
        self.lost: str = ""

    def happened(self, at_ms: int, lag_ms: int, obj: Object) -> None:
        """An event is on its way."""
        last = self.waiting[-1][0] if self.waiting else 0
        self.waiting.append((max(last, at_ms + lag_ms), obj))


class Run:
    """Server, watches and recorder on one clock of milliseconds."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.clock.ns = 0
        self.batch = Batch("deploy", NAMES)
        self.clones = Clones(self.batch)
        self.observers = Observers(self.clock, self.batch)
        self.server = Server()
        self.watches = [self._watch(kind) for kind in range(3)]
        self.clones.looks = self.observers.looks_at(self.watches[0].stream.view)
        self.later: list[tuple[int, Callable[[int], None]]] = []

    def _watch(self, kind: int) -> Watch:
        clones, scope = self.clones, Scope((VM, DATA_VOLUME, PVC)[kind], "ns")
        view = (
            View(scope, clones.vm, None, ("deployed",), clones.caught_up),
            View(scope, clones.data_volume, None, ("datavolume_succeeded", "deployed")),
            View(scope, clones.claim, None, ("pvc_bound", "deployed")),
        )[kind]
        reflector: Any = type("Counts", (), {"resumed": 0, "relists": 0, "broken": 0, "looks": True})()
        stream = Stream(view, reflector, lag_ns=LAG_MS * MS)
        self.observers.streams.append(stream)
        return Watch(kind, stream)

    def play(self, story: list[Event]) -> None:
        """From the first list to the end of all that was on its way."""
        for watch in self.watches:
            self._tell(watch, Listed([], self.clock.ns))
        self.clock.ns = MS
        self.batch.release(self.clock)
        for i in range(len(NAMES)):
            self.batch.requested[i] = self.batch.seen["acknowledged"][i] = self.clock.ns
        for event in sorted(story, key=lambda event: event.at_ms):
            self._until(event.at_ms)
            self._happen(event)
        self._until(END_MS)
        self.observers.settle()
        self.clones.narrow()

    def _happen(self, event: Event) -> None:
        watch = self.watches[event.kind]
        if event.what == "state":
            if self.server.change(event):
                watch.happened(event.at_ms, event.lag_ms, self.server.shown(event.kind, event.vm))
        elif event.what == "beat":
            watch.stream.beat_ns, watch.stream.beat = self.clock.ns, ("heart", str(event.at_ms))
            beat = {"metadata": {"name": "heart", "annotations": {BEAT: str(event.at_ms)}}, "spec": {}}
            watch.happened(event.at_ms, event.lag_ms, beat)
        elif not watch.lost:
            watch.lost, watch.closed_until_ms = event.what, event.at_ms + 1 + event.lag_ms * OPEN_MS // LAG_MS
            watch.stream.reflector.looks = event.what == "end"

    def _until(self, end_ms: int) -> None:
        """Deliver all that arrives up to a moment, watch by watch in the order of time."""
        for now_ms in self._moments(end_ms):
            self.clock.ns = max(self.clock.ns, now_ms * MS)
            for watch in self.watches:
                self._advance(watch, now_ms)
            for due, call in [each for each in self.later if each[0] <= now_ms]:
                self.later.remove((due, call))
                call(self.clock.ns)

    def _moments(self, end_ms: int) -> list[int]:
        moments = {end_ms}
        for watch in self.watches:
            moments |= {ms for ms, _ in watch.waiting} | {watch.closed_until_ms}
            moments |= {watch.closed_until_ms + round(REPLAY_S * 1000)}
        return sorted(ms for ms in moments if ms <= end_ms)

    def _advance(self, watch: Watch, now_ms: int) -> None:
        if watch.lost:
            if now_ms < watch.closed_until_ms:
                return
            self._reopen(watch)
        while watch.waiting and watch.waiting[0][0] <= now_ms:
            _, obj = watch.waiting.pop(0)
            self._tell(watch, WatchBatch(self.clock.ns, [WatchEvent("MODIFIED", obj)]))

    def _reopen(self, watch: Watch) -> None:
        lost, watch.lost = watch.lost, ""
        reflector: Any = watch.stream.reflector
        reflector.looks = True
        if lost == "end":
            reflector.resumed += 1
            return
        reflector.broken += lost == "break"
        reflector.relists += lost == "gone"
        self._tell(watch, Gap(watch.stream.heard_ns, self.clock.ns))
        if watch.stream.view.caught_up:
            due_ms = self.clock.ns // MS + round(REPLAY_S * 1000)
            self.later.append((due_ms, watch.stream.view.caught_up))
        if lost == "gone":
            watch.waiting.clear()
            objects = [self.server.shown(watch.kind, vm) for vm in range(len(NAMES))]
            self._tell(watch, Listed(objects, self.clock.ns))

    def _tell(self, watch: Watch, notice: Notice) -> None:
        self.observers._told(watch.stream, notice)


@settings(max_examples=40, deadline=None)
@given(events)
def test_what_is_recorded_lies_within_its_bound_of_what_happened(story: list[Event]) -> None:
    async def check() -> None:
        run = Run()
        run.play(story)
        for step in STEPS:
            for vm, (seen_ns, error_s) in enumerate(
                zip(run.batch.seen[step], run.batch.errors_s(step), strict=True)
            ):
                if seen_ns is None:
                    continue
                assert error_s is not None
                true_ns = run.server.true[step, vm] * MS
                assert seen_ns - error_s * NS - 1 <= true_ns <= seen_ns, (step, vm)

    asyncio.run(check())
