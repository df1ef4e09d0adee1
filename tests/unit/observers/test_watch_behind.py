"""A watch that tells late what the API has answered long ago is as good as none, and that is noticed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.cluster.kinds import VM
from infra.cluster.port import Scope, WatchBatch, WatchEvent
from tasks.analysis.verdicts import BatchFacts, verdict
from tasks.journal import Journal
from tasks.observing import BEAT, Stream, View
from tasks.thresholds import Limits

S = 1_000_000_000


class Quiet:
    resumed = relists = broken = 0


def stream_with_a_beat(sent_s: float, answered_s: float | None) -> Stream:
    """A stream whose heartbeat number 1 was sent, and answered, at these moments."""
    reflector: Any = Quiet()
    stream = Stream(View(Scope(VM, "ns"), lambda *_: None), reflector)
    stream.beat_ns, stream.beat = round(sent_s * S), ("beat", "1")
    stream.answered_ns = None if answered_s is None else round(answered_s * S)
    return stream


def beat_at(second: float) -> WatchBatch:
    meta = {"name": "beat", "annotations": {BEAT: "1"}}
    return WatchBatch(round(second * S), [WatchEvent("MODIFIED", {"metadata": meta})])


@pytest.mark.parametrize(
    ("released_s", "sent_s", "answered_s", "told_s", "behind_s"),
    [(1, 10, 12, 19, 7.0), (15, 10, 12, 19, 4.0), (1, 10, None, 10.2, 0.0)],
    ids=["late", "only what lies after the release", "told before it was answered"],
)
def test_a_late_beat_says_by_how_much(
    released_s: float, sent_s: float, answered_s: float | None, told_s: float, behind_s: float
) -> None:
    journal, stream = Journal(), stream_with_a_beat(sent_s, answered_s)
    journal.released_ns = round(released_s * S)
    stream.told(beat_at(told_s), journal)
    assert journal.watch_behind_s == pytest.approx(behind_s)
    assert stream.beat_ns is None


def test_on_a_server_only_what_a_beat_proves_counts_as_told() -> None:
    stream, told = stream_with_a_beat(10, 11), WatchEvent("MODIFIED", {"metadata": {"name": "vm-1"}})
    stream.steady, stream.is_beaten = False, True
    stream.told(WatchBatch(11 * S, [told]), Journal())
    assert (stream.told_until_ns, stream.late_ns) == (0, 0), "before its first beat nothing is proven"
    stream.told(beat_at(12), Journal())
    stream.told(WatchBatch(15 * S, [told]), Journal())
    assert (stream.told_until_ns, stream.late_ns) == (10 * S, 0)


@given(
    pauses_s=st.lists(st.floats(0.1, 3), min_size=2, max_size=8),
    lags_s=st.lists(st.floats(0, 5), min_size=8, max_size=8),
    at=st.floats(0, 1),
)
def test_no_event_between_two_beats_is_later_than_the_bracket(
    pauses_s: list[float], lags_s: list[float], at: float
) -> None:
    stream, before_s, sent_s = stream_with_a_beat(1, None), 0.0, 1.0
    stream.steady = False
    coming_s = latest_s = 0.0
    for number, (pause_s, lag_s) in enumerate(zip(pauses_s, lags_s, strict=False)):
        coming_s = max(coming_s, sent_s + lag_s)
        stream.beat_ns, stream.beat = round(sent_s * S), ("beat", "1")
        stream.told(beat_at(coming_s), Journal())
        if number:
            # of all moments between two sendings, told at the latest with the later beat
            happened_s = before_s + at * (sent_s - before_s)
            latest_s = max(latest_s, coming_s - happened_s)
        before_s, sent_s = sent_s, coming_s + pause_s
    assert stream.bracket_ns >= latest_s * S - 10


def test_a_bookmark_has_no_name_and_is_not_the_beat_that_is_awaited() -> None:
    journal, stream = Journal(), stream_with_a_beat(10, 11)
    bookmark = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "7", "creationTimestamp": None}})
    stream.told(WatchBatch(12 * S, [bookmark]), journal)
    assert stream.beat_ns == 10 * S
    assert stream.heard_ns == 12 * S


def test_a_beat_that_never_comes_counts_up_to_the_end() -> None:
    journal, stream = Journal(), stream_with_a_beat(10, 11)
    journal.released_ns = S
    stream.behind(61 * S, journal)
    assert journal.watch_behind_s == pytest.approx(50)


def test_it_is_a_reason_past_its_threshold() -> None:
    assert verdict(BatchFacts(n=1, n_ok=1, watch_behind_s=4.9), Limits()) == ("valid", [])
    assert verdict(BatchFacts(n=1, n_ok=1, watch_behind_s=12.0), Limits()) == (
        "degraded",
        ["watch_gap: a watch was 12.0 s late (limit 5 s)"],
    )
