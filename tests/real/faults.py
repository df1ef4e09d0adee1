"""Every fault that a boot storm on a real API server has to survive, and what its verdict then has to say."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.real import breaking
from tests.real.lab import Found, Lab
from tests.real.proxy import Proxy, proxied
from tests.real.storm import Spec

CALM = {"brakes": {"active": False}}
"""Faults are looked at one by one; the brakes would stop most of these storms."""
Storm = Callable[[Lab, Spec], Found]
Holds = Callable[[Found], bool]


@dataclass(frozen=True)
class Fault:
    """What is done, the codes that the verdict must name, those that it may, and what else has to hold."""

    does: str
    storm: Storm
    named: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    holds: Holds = lambda _: True


def problems(fault: Fault, found: Found, size: int) -> list[str]:
    """Why a storm is no proof; none: it is one."""
    codes, names, wrong = set(found.codes), {row["vm"] for row in found.vms}, found.checked.wrong
    said = {
        f"{len(found.vms)} records of {len(names)} VMs, {size} asked": len(found.vms) == len(names) == size,
        f"not ok: {size - found.batch['n_ok']}": found.batch["n_ok"] == size,
        f"{len(wrong)} moments beyond their bound, {wrong[:1]}": not wrong,
        f"only {found.checked.n} moments compared": found.checked.n >= 3 * size,
        f"not named: {sorted(fault.named - codes)}": fault.named <= codes,
        f"named without need: {sorted(codes - fault.named - fault.may)}": codes <= fault.named | fault.may,
        f"observed: {found.observer}": fault.holds(found),
        f"said: {found.said}": not found.said,
    }
    return [problem for problem, is_fine in said.items() if not is_fine]


def undisturbed(lab: Lab, spec: Spec) -> Found:
    return lab.storm(spec)


def api_server_killed(lab: Lab, spec: Spec) -> Found:
    return lab.storm(spec, lambda: breaking.kill_api_server(lab.testbed))


def etcd_stopped(lab: Lab, spec: Spec) -> Found:
    return lab.storm(spec, lambda: breaking.stop_etcd(lab.testbed, 20.0))


def etcd_hangs(lab: Lab, spec: Spec) -> Found:
    return lab.storm(spec, lambda: breaking.hang_etcd(lab.testbed, 8.0))


def history_compacted(lab: Lab, spec: Spec) -> Found:
    """Without its cache the API server has etcd's history, and no more than that."""
    with _other_flags(lab, "--watch-cache=false"), _through_proxy(lab) as (proxy, kubeconfig):

        def compact() -> None:
            proxy.no_watches(7.0)
            time.sleep(2.0)
            breaking.compact_history(lab.testbed)

        return lab.storm(spec, compact, kubeconfig)


def too_many_requests(lab: Lab, spec: Spec) -> Found:
    """The old limiter answers 429 at once; members of system:masters, as the controllers here, pass it."""
    limits = ("--max-requests-inflight=3", "--max-mutating-requests-inflight=2")
    with (
        _other_flags(lab, "--enable-priority-and-fairness=false", *limits),
        _by_token(lab, lab.testbed.server) as (kubeconfig, _),
    ):
        return lab.storm(spec, kubeconfig=kubeconfig)


def cut_within_a_line(lab: Lab, spec: Spec) -> Found:
    with _through_proxy(lab) as (proxy, kubeconfig):

        def cut() -> None:
            for _ in range(4):
                proxy.cut_watches_within_a_line()
                time.sleep(1.5)

        found = lab.storm(spec, cut, kubeconfig)
        assert proxy.cuts >= 4, proxy.cuts
        return found


def slow_loris(lab: Lab, spec: Spec) -> Found:
    with _through_proxy(lab) as (proxy, kubeconfig):
        return lab.storm(spec, lambda: proxy.trickle(12.0), kubeconfig)


def token_expires(lab: Lab, spec: Spec) -> Found:
    """Its file has a new one when the API server's cache has certainly run out, and some seconds more."""
    paced = replace(spec, changes={**spec.changes, "boot": {"rate_per_s": spec.size / 40}})
    uid, bound_to = breaking.account(lab.testbed), breaking.bind_tokens(lab.testbed)
    with _by_token(lab, lab.testbed.server, bound_to) as (kubeconfig, tokens):

        def rotate() -> None:
            breaking.end_tokens(lab.testbed)
            time.sleep(breaking.CACHED_S + 4.0)
            tokens.write_text(breaking.token(lab.testbed, uid))

        return lab.storm(paced, rotate, kubeconfig)


def watches_end(lab: Lab, spec: Spec) -> Found:
    return lab.storm(replace(spec, watch_s=2))


def clock_moved(lab: Lab, spec: Spec) -> Found:
    return lab.storm(replace(spec, clock_jump_s=-3600.0))


FAULTS = {
    "nothing": Fault("nothing", undisturbed),
    "api-killed": Fault(
        "kill -9 of the API server, started again after 6 s",
        api_server_killed,
        frozenset({"api_unavailable"}),
        frozenset({"server_errors", "watch_gap", "connection_lost", "api_slow"}),
    ),
    "etcd-stopped": Fault(
        "etcd stopped for 20 s",
        etcd_stopped,
        frozenset({"api_unavailable"}),
        frozenset({"server_errors", "watch_gap", "connection_lost", "api_slow"}),
    ),
    "etcd-hangs": Fault(
        "etcd frozen for 8 s",
        etcd_hangs,
        frozenset({"api_unavailable"}),
        frozenset({"server_errors", "watch_gap", "api_slow"}),
    ),
    "compacted": Fault(
        "watches ended, history compacted before they are opened again: 410",
        history_compacted,
        frozenset({"watch_gap"}),
        frozenset({"connection_lost", "api_slow"}),
        lambda found: found.observer["relists"] > 0,
    ),
    "too-many": Fault(
        "the API server takes 3 reads and 2 writes at a time: 429",
        too_many_requests,
        frozenset({"throttled"}),
        frozenset({"watch_gap", "api_slow"}),
        lambda found: found.observer["http_429"] > 0,
    ),
    "cut": Fault(
        "watches cut in the middle of a line, four times",
        cut_within_a_line,
        frozenset({"connection_lost"}),
        frozenset({"watch_gap", "api_slow"}),
    ),
    "slow-loris": Fault(
        "answers and watches at 512 bytes a second for 12 s",
        slow_loris,
        frozenset({"watch_gap"}),
        frozenset({"api_slow", "api_unavailable"}),
    ),
    "token-expires": Fault(
        "the token ends, its file has a new one 14 s later",
        token_expires,
        frozenset({"auth_expired"}),
        frozenset({"rate_missed", "watch_gap", "api_slow"}),
    ),
    "watches-end": Fault(
        "the server ends each watch after 2 s, cleanly",
        watches_end,
        may=frozenset({"api_slow"}),
        holds=lambda found: found.observer["resumed"] > 2,
    ),
    "clock-moved": Fault(
        "this machine's wall clock set back by an hour",
        clock_moved,
        frozenset({"clock_skew"}),
        frozenset({"api_slow"}),
    ),
}


@contextmanager
def _other_flags(lab: Lab, *flags: str) -> Iterator[None]:
    breaking.restart_api_server(lab.testbed, *flags)
    try:
        yield
    finally:
        breaking.restart_api_server(lab.testbed)


@contextmanager
def _by_token(lab: Lab, server: str, bound_to: str = "") -> Iterator[tuple[Path, Path]]:
    first = breaking.token(lab.testbed, breaking.account(lab.testbed), bound_to)
    yield breaking.token_kubeconfig(lab.testbed, lab.folder, server, first)


@contextmanager
def _through_proxy(lab: Lab) -> Iterator[tuple[Proxy, Path]]:
    with proxied(lab.testbed) as proxy, _by_token(lab, proxy.server) as (kubeconfig, _):
        yield proxy, kubeconfig
