"""A batch in shares: each VM in one, errors that hold the truth, histograms and counts of the whole."""

import asyncio
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.clock_offset import Offset
from infra.manifests import SLOTS, run_selector, slot_of
from tasks.analysis.histograms import Bin, merge, total
from tasks.batch import Batch
from tasks.shards.share import Found, Share, batch_of, found_of, lose, number_of, slots_of, split
from tasks.shards.share import merge as put_together

INDICES = st.lists(st.integers(0, 9999), min_size=1, max_size=300, unique=True)
SHARDS = st.integers(1, SLOTS)
T0 = 5_000_000_000


def names_of(indices: list[int]) -> list[str]:
    return [f"r-b-{i:04d}" for i in indices]


async def released(names: list[str]) -> Batch:
    batch = Batch("boot", names)
    batch.released_ns = batch.journal.released_ns = T0
    return batch


def shares_of(names: list[str], shards: int) -> tuple[Batch, list[Share]]:
    batch = asyncio.run(released(names))
    return batch, split(batch, shards, "nonce", {})


@given(INDICES, SHARDS)
def test_every_vm_is_in_one_share_and_no_share_is_empty(indices: list[int], shards: int) -> None:
    names = names_of(indices)
    _, shares = shares_of(names, shards)
    assert sorted(i for share in shares for i in share.turns) == list(range(len(names)))
    assert all(share.names == tuple(names[i] for i in share.turns) for share in shares)
    assert all(share.names for share in shares)
    assert len(shares) == min(shards, len({slot_of(i) for i in indices}))


@given(INDICES, SHARDS)
def test_a_share_watches_the_slots_of_its_vms_and_of_no_others(indices: list[int], shards: int) -> None:
    _, shares = shares_of(names_of(indices), shards)
    watched = [slot for share in shares for slot in share.slots]
    assert len(watched) == len(set(watched))
    for share in shares:
        assert {slot_of(number_of(name)) for name in share.names} == set(share.slots)
        assert run_selector("r", "boot", share.slots).endswith(f"({','.join(map(str, share.slots))})")


def test_shares_of_a_whole_batch_are_about_equal() -> None:
    for n, shards in ((6000, 4), (6000, 7), (100, 8), (40, 4)):
        slots = slots_of(dict(enumerate(names_of(list(range(n))))), shards)
        sizes = [sum(slot_of(i) in own for i in range(n)) for own in slots]
        assert max(sizes) - min(sizes) <= -(-n // SLOTS)


def found(share: Share, clock: Any) -> Found:
    """A share that saw each VM run at a moment of its own clock."""

    async def made() -> Found:
        batch = batch_of(share)
        batch.released_ns = batch.journal.released_ns = clock(T0)
        batch.lag_ns["running"] = 7
        for j, i in enumerate(share.turns):
            batch.requested[j] = clock(T0 + i)
            batch.mark("running", j, clock(T0 + 1_000 + i), clock(T0 + 900 + i))
            batch.succeed(j, clock(T0 + 1_000 + i))
            batch.journal.count("http_429", clock(T0 + i))
            batch.journal.largest("watch_lag_ms", clock(T0 + i), float(i))
        return found_of(batch, 0.0, 0, {})

    return asyncio.run(made())


@given(INDICES, st.integers(1, 8), st.integers(-(10**12), 10**12), st.integers(0, 500), st.floats(-1, 1))
def test_a_bound_from_another_clock_holds_the_truth(
    indices: list[int], shards: int, offset_ns: int, error_ns: int, wrong: float
) -> None:
    batch, shares = shares_of(names_of(indices), shards)
    measured = Offset(offset_ns + round(error_ns * wrong), error_ns)
    for share in shares:
        put_together(batch, share, found(share, lambda ns: ns - offset_ns), measured)
    assert batch.state == ["ok"] * len(indices)
    for i, (earliest, seen) in enumerate(zip(batch.earliest("running"), batch.seen["running"], strict=True)):
        assert earliest is not None
        assert seen is not None
        assert earliest <= T0 + 893 + i
        assert seen >= T0 + 1_000 + i
        assert seen - earliest <= 107 + 1_000 + 2 * error_ns


def test_counts_of_all_shares_are_those_of_the_batch() -> None:
    batch, shares = shares_of(names_of(list(range(40))), 4)
    for share in shares:
        put_together(batch, share, found(share, lambda ns: ns + 123), Offset(-123, 0))
    (row,) = batch.journal.rows("boot", 40)
    assert (row["http_429"], row["watch_lag_ms"]) == (40, 39.0)


def test_a_lost_share_has_records_without_moments() -> None:
    batch, shares = shares_of(names_of(list(range(8))), 4)
    for share in shares[1:]:
        put_together(batch, share, found(share, lambda ns: ns), Offset(0, 0))
    lose(batch, shares[0], "killed")
    rows = [row for row in batch.rows(8) if row["state"] == "lost"]
    assert [(row["vm"], row["reason"], row["detail"]) for row in rows] == [
        (name, "shard_lost", "shard 0: killed") for name in shares[0].names
    ]
    assert all(row["running_s"] is None and row["requested_s"] is None for row in rows)
    assert len(batch.rows(8)) == 8


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200), SHARDS, st.randoms(use_true_random=False))
def test_histograms_of_shards_merged_are_the_histogram_of_the_whole(
    values: list[int], shards: int, random: Random
) -> None:
    parts: list[list[int]] = [[] for _ in range(shards)]
    for value in values:
        random.choice(parts).append(value)
    merged = merge(binned(part) for part in parts)
    assert merged == binned(values)
    assert total(merged) == len(values)


def binned(values: list[int]) -> tuple[Bin, ...]:
    edges = sorted({value // 1000 for value in values})
    return tuple(Bin(e * 1000, (e + 1) * 1000, sum(v // 1000 == e for v in values)) for e in edges)
