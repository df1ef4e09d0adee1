import asyncio
from contextlib import suppress
from typing import Any

import pytest

from infra.cluster.kinds import VM
from infra.cluster.port import Scope, WatchBatch
from infra.cluster.reflector import Gap, Listed, Notice, Reflector
from infra.errors import Expired, Gone, Throttled, Unavailable
from tests.unit.stages.fakes import ScriptedCluster, StepClock, event, obj


class Enough(Exception):
    """As many notices as were asked for."""


def observe(cluster: ScriptedCluster, clock: StepClock, n: int) -> tuple[list[Notice], Reflector]:
    """The first `n` notices."""
    reflector = Reflector(cluster, Scope(VM, "ns"), clock)  # type: ignore[arg-type]

    found: list[Notice] = []

    def take(notice: Notice) -> None:
        found.append(notice)
        if len(found) == n:
            raise Enough

    with suppress(Enough):
        asyncio.run(asyncio.wait_for(reflector.follow(take), 5))
    return found, reflector


def batch(ns: int, *events: Any) -> WatchBatch:
    return WatchBatch(ns, list(events))


def test_it_lists_then_watches_from_the_listed_version() -> None:
    cluster = ScriptedCluster([([obj("a", 3)], "7")], [[batch(2, event("MODIFIED", "a", 8))]])
    notices, _ = observe(cluster, StepClock(), 2)
    assert notices[0] == Listed([obj("a", 3)], 1_000_000_000)
    assert notices[1] == batch(2, event("MODIFIED", "a", 8))
    assert cluster.watched == ["7"]


def test_a_clean_end_resumes_at_the_last_version_without_a_gap() -> None:
    clock = StepClock()
    first, second = batch(2 * 10**9, event("ADDED", "a", 8)), batch(3 * 10**9, event("MODIFIED", "a", 9))
    cluster = ScriptedCluster([([], "7")], [[first], [second]], clock)
    notices, reflector = observe(cluster, clock, 3)
    assert notices[1:] == [first, second]
    assert cluster.watched == ["7", "8"]
    assert reflector.resumed == 1
    assert clock.slept == []


def test_a_bookmark_moves_the_version_to_resume_at() -> None:
    clock = StepClock()
    bookmark, later = batch(2 * 10**9, event("BOOKMARK", "", 50)), batch(3 * 10**9, event("ADDED", "b", 51))
    cluster = ScriptedCluster([([], "7")], [[bookmark], [later]], clock)
    observe(cluster, clock, 3)
    assert cluster.watched == ["7", "50"]


def test_gone_is_a_gap_since_it_was_last_heard_and_a_new_list() -> None:
    clock = StepClock()
    heard = batch(2 * 10**9, event("ADDED", "a", 8))
    cluster = ScriptedCluster([([], "7"), ([obj("b", 20)], "30")], [[heard], [Gone("too old")]], clock)
    notices, reflector = observe(cluster, clock, 4)
    gap, listed = notices[2], notices[3]
    assert isinstance(gap, Gap)
    assert gap.from_ns == 2 * 10**9
    assert isinstance(listed, Listed)
    assert listed.items == [obj("b", 20)]
    assert reflector.relists == 1


def test_a_broken_connection_is_a_gap_and_loses_nothing() -> None:
    clock = StepClock()
    heard, later = batch(2 * 10**9, event("ADDED", "a", 8)), batch(9 * 10**9, event("MODIFIED", "a", 9))
    cluster = ScriptedCluster(
        [([], "7"), Unavailable("away"), ([], "9")], [[heard, Unavailable("reset")], [later]], clock
    )
    notices, reflector = observe(cluster, clock, 4)
    gap = notices[2]
    assert isinstance(gap, Gap)
    assert gap.from_ns == 2 * 10**9
    assert gap.to_ns > gap.from_ns
    assert notices[3] == later
    assert cluster.watched == ["7", "8"]
    assert reflector.broken == 1
    assert len(clock.slept) == 2


def test_history_that_went_with_an_outage_is_listed_again_at_once() -> None:
    clock = StepClock()
    away: list[Any] = [Unavailable("away")] * 12
    cluster = ScriptedCluster(
        [([], "7"), *away, ([], "9"), ([obj("b", 9)], "9")],
        [[Unavailable("reset")], [Gone("too old")]],
        clock,
    )
    notices, _ = observe(cluster, clock, 4)
    outage, gone, listed = notices[1:]
    assert isinstance(outage, Gap)
    assert isinstance(gone, Gap)
    assert isinstance(listed, Listed)
    assert outage.to_ns - outage.from_ns > 20e9
    assert gone.to_ns - outage.to_ns < 0.5e9
    assert max(clock.slept) <= 5


def test_watches_that_break_at_once_are_one_gap_however_well_the_server_answers_otherwise() -> None:
    clock = StepClock()
    heard, later = batch(2 * 10**9, event("ADDED", "a", 8)), batch(60 * 10**9, event("MODIFIED", "a", 9))
    refused: list[Any] = [[Unavailable("reset")]] * 9
    cluster = ScriptedCluster(
        [([], "7"), *[([], "8")] * 10], [[heard, Unavailable("reset")], *refused, [later]], clock
    )
    notices, _ = observe(cluster, clock, 13)
    gaps = [notice for notice in notices if isinstance(notice, Gap)]
    assert notices[-1] == later
    assert [gap.from_ns for gap in gaps] == [2 * 10**9] * 10
    assert gaps[-1].to_ns - gaps[-1].from_ns > 2e9


def test_a_throttled_list_waits_as_long_as_the_server_says() -> None:
    clock = StepClock()
    cluster = ScriptedCluster([Throttled("slow down", 7.0), ([], "1")], [])
    observe(cluster, clock, 1)
    assert clock.slept == [7.0]


def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_busy_loop() -> None:
    clock = StepClock()
    cluster = ScriptedCluster([([], "7")], [[], [], [batch(10**10, event("ADDED", "a", 8))]], clock)
    observe(cluster, clock, 2)
    assert clock.slept == [0.1, 0.1]


def test_a_refused_token_is_a_gap_until_a_new_one_comes_and_an_error_when_none_does() -> None:
    clock = StepClock()
    back = ScriptedCluster([([], "7"), Expired("401"), ([], "8")], [[Expired("401")]], clock)
    notices, _ = observe(back, clock, 2)
    assert [type(notice) for notice in notices] == [Listed, Gap]
    never = ScriptedCluster([([], "7"), *[Expired("401")] * 100], [[Expired("401")]], clock)
    start_ns = clock.ns
    with pytest.raises(Expired):
        observe(never, clock, 2)
    assert 120 <= (clock.ns - start_ns) / 1e9 < 160
