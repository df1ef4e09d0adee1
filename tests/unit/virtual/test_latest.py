"""What a controller takes for the newest state of an object: the watch's, or the answer to its own write."""

from typing import Any

from infra.cluster.kinds import VM
from infra.cluster.port import Object, Scope, WatchBatch, WatchEvent
from infra.cluster.virtual.control_plane import Latest
from infra.cluster.virtual.informer import Informer

KEY = ("ns", "vm")


def version(number: int) -> Object:
    return {"metadata": {"namespace": "ns", "name": "vm", "resourceVersion": str(number)}}


def told(informer: Informer, number: int) -> None:
    informer._notice(WatchBatch(0, [WatchEvent("MODIFIED", version(number))]))


def latest() -> tuple[Informer, Latest]:
    nobody: Any = None
    informer = Informer(nobody, nobody, Scope(VM))
    return informer, Latest(informer)


def test_an_answer_is_newest_until_the_watch_tells_of_it() -> None:
    informer, seen = latest()
    told(informer, 9)
    seen.wrote(version(10))
    assert seen.get(KEY) == version(10)
    told(informer, 11)
    assert seen.get(KEY) == version(11)


def test_an_answer_that_comes_after_the_watch_told_of_a_later_write_hides_nothing() -> None:
    informer, seen = latest()
    told(informer, 41)
    seen.wrote(version(40))
    assert seen.get(KEY) == version(41)


def test_an_answer_to_a_write_of_what_the_watch_has_not_told_yet_is_known() -> None:
    _, seen = latest()
    seen.wrote(version(7))
    assert seen.get(KEY) == version(7)
