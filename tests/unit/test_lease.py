"""One benchmark per cluster: who may take the lease, when, and who keeps it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.lease import WHERE, Claim, Holder, Pace
from infra.cluster.port import Cluster, Object
from infra.errors import Conflict, InUse, StageError, StoreError
from infra.machine import machine_id
from infra.only_run import holder_of
from tests.unit.stages.conftest import OpenWorld, open_virtual

__all__ = ["open_virtual"]

ADA = Holder("one/ab", "m1", "p1", "run one of ada@bastion, pid 1")
BOB = Holder("two/cd", "m2", "p2", "run two of bob@bastion, pid 2")
ADA_ELSEWHERE = Holder("one/ab", "m3", "p3", "run one of ada@laptop, pid 3")
Use = Callable[[Cluster], Awaitable[Any]]


class Watch:
    """A clock that a test turns."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def use(open_virtual: OpenWorld) -> Any:
    """Run a coroutine on a cluster that lasts as long as the test."""
    with open_virtual() as world:
        yield lambda what: world.run(what(world.cluster))


def claim(holder: Holder, clock: Watch | None = None) -> Claim:
    return Claim(holder, Pace(lasts_s=60), clock or Watch())


def test_the_second_hears_who_has_the_cluster_until_it_is_released(use: Any) -> None:
    first, second = claim(ADA), claim(BOB)
    assert use(first.tried) == ""
    assert use(second.tried).startswith("run one of ada@bastion, pid 1, since ")
    use(first.release)
    assert use(second.tried) == ""
    lease: Object = use(lambda cluster: cluster.get(WHERE))
    assert lease["spec"]["holderIdentity"] == "two/cd/m2/p2"
    assert lease["spec"]["leaseTransitions"] == 2


def test_a_lease_that_nobody_renews_for_its_duration_is_taken_over(use: Any) -> None:
    clock = Watch()
    first, second = claim(ADA), claim(BOB, clock)
    use(first.tried)
    assert use(second.tried)
    clock.now_s += 59
    assert use(second.tried)
    clock.now_s += 1
    assert use(second.tried) == ""
    with pytest.raises(StageError, match="taken over by run two of bob@bastion, pid 2"):
        use(first.renew)


def test_a_renewed_lease_is_not_taken_over_however_long_one_waits(use: Any) -> None:
    clock = Watch()
    first, second = claim(ADA), claim(BOB, clock)
    use(first.tried)
    for _ in range(5):
        assert use(second.tried)
        clock.now_s += 40
        use(first.renew)


def test_a_run_that_goes_on_in_a_new_process_takes_its_own_lease_at_once(use: Any) -> None:
    first, again = claim(ADA), claim(ADA._replace(process="p9"))
    use(first.tried)
    assert use(again.tried) == ""
    with pytest.raises(InUse, match=r"taken over by run one of ada@bastion, pid 1, since \d\d:"):
        use(first.renew)
    use(first.release)
    assert use(lambda cluster: cluster.get(WHERE))["spec"]["holderIdentity"] == "one/ab/m1/p9"


def test_another_machine_waits_for_its_own_run_until_the_lease_has_run_out(use: Any) -> None:
    clock = Watch()
    first, elsewhere = claim(ADA), claim(ADA_ELSEWHERE, clock)
    use(first.tried)
    assert use(elsewhere.tried).startswith("run one of ada@bastion, pid 1, since ")
    clock.now_s += 59
    assert use(elsewhere.tried).startswith("run one of ada@bastion, pid 1, since ")
    clock.now_s += 1
    assert use(elsewhere.tried) == ""
    with pytest.raises(InUse, match="taken over by run one of ada@laptop, pid 3, since "):
        use(first.renew)


def test_another_machine_is_refused_as_soon_as_its_run_is_seen_alive(use: Any) -> None:
    first, elsewhere = claim(ADA), claim(ADA_ELSEWHERE)
    use(first.tried)
    assert use(elsewhere.tried)
    use(first.renew)
    with pytest.raises(InUse, match=r"run one of ada@bastion, pid 1, since .* at work on another machine"):
        use(elsewhere.tried)
    use(first.renew)


def test_who_took_it_over_and_let_go_is_named_all_the_same(use: Any) -> None:
    clock = Watch()
    first, elsewhere = claim(ADA), claim(ADA_ELSEWHERE, clock)
    use(first.tried)
    use(elsewhere.tried)
    clock.now_s += 60
    assert use(elsewhere.tried) == ""
    use(elsewhere.release)
    with pytest.raises(InUse, match="taken over by run one of ada@laptop, pid 3, since "):
        use(first.renew)


def test_a_machine_has_one_name_and_another_state_folder_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path / "a"))
    name = machine_id()
    assert machine_id() == name == (tmp_path / "a/machine").read_text().strip()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["machine"]
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path / "b"))
    assert machine_id() != name


def test_a_machine_whose_name_cannot_be_kept_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="choose another folder in VIRTSCALE_STATE"):
        machine_id()


def test_of_two_that_find_it_free_one_gets_it(use: Any) -> None:
    first, second = claim(ADA), claim(BOB)
    use(first.tried)
    use(first.release)

    class Slow:
        """The other one is faster between this one's look and its patch."""

        def __init__(self, inner: Cluster) -> None:
            self._inner = inner

        async def get(self, ref: Any) -> Object:
            found = await self._inner.get(ref)
            assert await second.tried(self._inner) == ""
            return found

        async def patch(self, *args: Any) -> Object:
            return await self._inner.patch(*args)

    assert use(lambda cluster: first.tried(Slow(cluster)))  # type: ignore[arg-type]
    with pytest.raises((Conflict, StageError)):
        use(first.renew)


def test_a_holder_is_named_without_the_runs_secret() -> None:
    nonce = "5ec2e7" * 5
    holder = holder_of("one", nonce)
    assert nonce not in holder.identity + holder.words
    assert holder.words.startswith("run one of ")
    assert holder_of("one", nonce).run == holder.run
    assert holder_of("one", nonce).process != holder.process
    assert holder_of("one", "another").run != holder.run
