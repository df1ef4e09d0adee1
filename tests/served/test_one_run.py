"""A cluster is held by one run at a time; another waits, and says for whom."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from infra.cluster.lease import WHERE, Holder, Pace
from infra.cluster.port import Object
from infra.cluster.real import KubernetesCluster
from infra.errors import InUse, StageError
from infra.only_run import Held, holder_of, only_run
from infra.results.open import open_store
from infra.results.port import Cell
from infra.results.run_results import open_results
from infra.served.access import CONTEXT
from tasks.records import TABLES
from tests.served.conftest import Server

BRISK = Pace(lasts_s=1, renew_s=0.1, look_s=0.05)


def lease_of(server: Server) -> Object:
    found: list[Object] = []

    async def look(cluster: KubernetesCluster) -> None:
        found.append(await cluster.get(WHERE))

    server.use(look)
    return found[0]


def test_a_second_run_waits_says_for_whom_and_starts_when_the_first_ends(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    told: list[str] = []
    ends: dict[str, float] = {}

    def second() -> None:
        with only_run(CONTEXT, holder_of("two", "b"), told.append, BRISK):
            ends["second began"] = time.monotonic()

    with only_run(CONTEXT, holder_of("one", "a"), told.append, BRISK) as held:
        waiting = threading.Thread(target=second)
        waiting.start()
        # longer than the lease lasts: it is renewed
        time.sleep(1.5)
        held.check()
        ends["first ended"] = time.monotonic()
    waiting.join(10)
    assert ends["second began"] >= ends["first ended"]
    assert len(told) == 1
    assert told[0].startswith("run one of ")
    assert lease_of(server)["spec"]["holderIdentity"] == ""


def test_who_was_silent_for_too_long_hears_that_the_cluster_was_taken_over(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    silent = Pace(lasts_s=1, renew_s=1.6, look_s=0.05)
    with (
        only_run(CONTEXT, holder_of("one", "a"), lambda _: None, silent) as held,
        only_run(CONTEXT, holder_of("two", "b"), lambda _: None, BRISK),
    ):
        with pytest.raises(StageError, match="taken over by run two"):
            checked_until_it_raises(held)
        assert "run two" in str(lease_of(server)["metadata"]["annotations"])


def on_another_machine(folder: Path) -> Holder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTSCALE_STATE", str(folder))
        return holder_of("one", "a")


def test_a_second_machine_is_refused_while_the_run_lives_and_the_first_goes_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    told: list[str] = []
    with only_run(CONTEXT, holder_of("one", "a"), told.append, BRISK) as held:
        second = only_run(CONTEXT, on_another_machine(tmp_path), told.append, BRISK)
        with (
            pytest.raises(InUse, match=r"^run one of \S+@.*, since \d\d:.*at work on another machine"),
            second,
        ):
            pass
        held.sure()
        assert len(told) == 1
    with only_run(CONTEXT, on_another_machine(tmp_path), told.append, BRISK) as held:
        held.sure()


def test_what_was_measured_before_another_machine_took_over_is_not_stored(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    asleep = Pace(lasts_s=1, renew_s=60, look_s=0.05)
    folder = str(tmp_path / "store")
    with (
        only_run(CONTEXT, holder_of("one", "a"), lambda _: None, asleep) as held,
        closing(open_results(open_store(folder), "one", "served", TABLES, tmp_path / "spool")) as results,
    ):
        results.sure = held.sure
        results.begin(Cell("deploy", "1")).commit({})
        attempt = results.begin(Cell("deploy", "2"))
        with only_run(CONTEXT, on_another_machine(tmp_path), lambda _: None, BRISK):
            pass
        with pytest.raises(InUse, match="taken over by run one of "):
            attempt.commit({})
        with pytest.raises(InUse, match="taken over by run one of "):
            held.check()
        assert [each.cell.cell for each in results.commits()] == ["1"]


def test_a_server_that_does_not_say_who_holds_it_is_not_believed(
    own: Callable[..., AbstractContextManager[Server]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with own() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        with only_run(CONTEXT, holder_of("one", "a"), lambda _: None, BRISK) as held:
            held.sure()
            server.stop()
            with pytest.raises(StageError, match="whether the cluster is still held for this run"):
                held.sure()


def checked_until_it_raises(held: Held) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        held.check()
        time.sleep(0.02)


def test_an_unknown_context_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from infra.errors import Unreachable

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with (
        pytest.raises(Unreachable),
        only_run("nowhere", holder_of("one", "a"), lambda _: None, BRISK),
    ):
        pass
