"""A batch in shares: which VMs another process takes, what it found, and how that becomes the batch again.

A share is made of whole slots (`infra.manifests`), so that a process watches its own VMs alone. Moments that
another clock took are brought to ours: what was seen as late as the offset allows, what bounds it as early,
so an error bound grows by twice the offset's error and still holds the truth.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

from infra.clock_offset import Offset
from infra.manifests import slot_of
from tasks.batch import Batch, Moments
from tasks.journal import Journal

LOST = "shard_lost"
"""Reason code of a VM whose process died."""


class Share(NamedTuple):
    """Some VMs of a batch as plain values; `turns` are their places in it, `more` is of the stage.

    `size` is the batch's, `nonce` the run's.
    """

    token: str
    number: int
    stage: str
    size: int
    nonce: str
    slots: tuple[int, ...]
    turns: tuple[int, ...]
    names: tuple[str, ...]
    uids: tuple[str, ...]
    more: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What became of the VMs of a share, on the clock of the process that took it."""

    seen: dict[str, Moments]
    not_yet: dict[str, Moments]
    lag_ns: dict[str, int | None]
    requested: Moments
    ended: Moments
    attempts: list[int]
    state: list[str]
    code: list[str | None]
    reason: list[str | None]
    uids: list[str]
    throttled: int
    unavailable: int
    braked: str
    journal: Journal
    gap_s: float
    late_ns: int
    more: dict[str, Any]


def number_of(name: str) -> int:
    """The number at the end of a VM's name: what depends on it does not depend on its batch mates."""
    return int(name.rpartition("-")[2])


def slots_of(names: dict[int, str], shards: int) -> list[tuple[int, ...]]:
    """The slots of these VMs dealt to at most so many shards, the fullest first; each has some."""
    vms: dict[int, int] = defaultdict(int)
    for name in names.values():
        vms[slot_of(number_of(name))] += 1
    dealt: list[list[int]] = [[] for _ in range(min(shards, len(vms)))]
    held = [0] * len(dealt)
    for slot in sorted(vms, key=lambda slot: (-vms[slot], slot)):
        least = held.index(min(held))
        dealt[least].append(slot)
        held[least] += vms[slot]
    return [tuple(sorted(slots)) for slots in dealt]


def split(batch: Batch, shards: int, nonce: str, more: dict[str, Any]) -> list[Share]:
    """The open VMs of a batch in shares, each VM in one."""
    names = {i: batch.names[i] for i in batch.where("")}
    shares = []
    for number, slots in enumerate(slots_of(names, shards)):
        turns = tuple(i for i, name in names.items() if slot_of(number_of(name)) in slots)
        shares.append(
            Share(
                token=f"{batch.names[0]}/{batch.stage}/{batch.cell}/{number}",
                number=number,
                stage=batch.stage,
                size=len(batch),
                nonce=nonce,
                slots=slots,
                turns=turns,
                names=tuple(names[i] for i in turns),
                uids=tuple(batch.uids[i] for i in turns),
                more=more,
            )
        )
    return shares


def batch_of(share: Share) -> Batch:
    """The VMs of a share as a batch of their own."""
    batch = Batch(share.stage, share.names)
    batch.uids, batch.turns = list(share.uids), share.turns
    return batch


def found_of(batch: Batch, gap_s: float, late_ns: int, more: dict[str, Any]) -> Found:
    """What there is to say of a share whose VMs are decided."""
    return Found(
        seen=batch.seen,
        not_yet=batch.not_yet,
        lag_ns=batch.lag_ns,
        requested=batch.requested,
        ended=batch.ended,
        attempts=batch.attempts,
        state=batch.state,
        code=batch.code,
        reason=batch.reason,
        uids=batch.uids,
        throttled=batch.throttled,
        unavailable=batch.unavailable,
        braked=batch.braked,
        journal=batch.journal,
        gap_s=gap_s,
        late_ns=late_ns,
        more=more,
    )


def merge(batch: Batch, share: Share, found: Found, offset: Offset) -> None:
    """Put what was found of a share into the batch, on our clock."""
    for step, seen in found.seen.items():
        lag_ns, heard = found.lag_ns[step], found.not_yet[step]
        # the lag of each process is its own, so it goes into the bound of each VM
        known = [None if lag_ns is None or ns is None else ns - lag_ns for ns in heard]
        _put(batch.seen.setdefault(step, [None] * len(batch)), share, seen, offset.most_ns)
        _put(batch.not_yet.setdefault(step, [None] * len(batch)), share, known, offset.least_ns)
        batch.lag_ns[step] = 0
    _put(batch.ended, share, found.ended, offset.most_ns)
    earliest_ns = batch.released_ns - offset.least_ns
    requested = [None if ns is None else max(ns, earliest_ns) for ns in found.requested]
    _put(batch.requested, share, requested, offset.least_ns)
    for i, attempts, uid in zip(share.turns, found.attempts, found.uids, strict=True):
        batch.attempts[i], batch.uids[i] = attempts, uid
    batch.throttled += found.throttled
    batch.unavailable += found.unavailable
    batch.braked = batch.braked or found.braked
    batch.journal.join(found.journal, offset.ns)
    for i, state, reason, code in zip(share.turns, found.state, found.reason, found.code, strict=True):
        batch.end(i, state, reason, code or "")


def _put(column: Moments, share: Share, moments: Moments, shift_ns: int) -> None:
    for i, ns in zip(share.turns, moments, strict=True):
        column[i] = None if ns is None else ns + shift_ns


def longest_gap_s(parts: list[tuple[Share, Found]]) -> float:
    """The longest time that an observer of any share did not look, seconds."""
    return max((found.gap_s for _, found in parts), default=0.0)


def lose(batch: Batch, share: Share, why: str) -> None:
    """The process that took a share is gone, and with it what it had seen."""
    for i in share.turns:
        batch.end(i, "lost", f"shard {share.number}: {why}", LOST)
