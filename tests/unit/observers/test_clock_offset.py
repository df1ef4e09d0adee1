"""The offset of another process's clock: whatever the network does, the bound holds."""

from hypothesis import given
from hypothesis import strategies as st

from infra.clock_offset import Offset, Trip, offset_of, over

NS = st.integers(0, 10**10)
WAYS = st.lists(st.tuples(NS, NS), min_size=1, max_size=20)
OFFSETS = st.integers(-(10**18), 10**18)


def trips(offset_ns: int, ways: list[tuple[int, int]]) -> list[Trip]:
    """Trips to a clock that is behind ours by the offset, of ways there and back that take so long."""
    made, now_ns = [], 10**15
    for there_ns, back_ns in ways:
        read_ns = now_ns + there_ns
        made.append(Trip(now_ns, read_ns - offset_ns, read_ns + back_ns))
        now_ns = read_ns + back_ns
    return made


@given(OFFSETS, WAYS)
def test_the_bound_holds_the_true_offset_however_unequal_the_ways_are(
    offset_ns: int, ways: list[tuple[int, int]]
) -> None:
    found = offset_of(trips(offset_ns, ways))
    assert found.least_ns <= offset_ns <= found.most_ns
    assert found.error_ns <= (min(sum(way) for way in ways) + 1) // 2


@given(OFFSETS, OFFSETS, WAYS, WAYS, st.floats(0, 1))
def test_two_measurements_bound_whatever_a_drifting_clock_showed_between_them(
    first_ns: int, last_ns: int, before: list[tuple[int, int]], after: list[tuple[int, int]], part: float
) -> None:
    bound = over(offset_of(trips(first_ns, before)), offset_of(trips(last_ns, after)))
    between_ns = first_ns + round((last_ns - first_ns) * part)
    assert bound.least_ns <= max(min(first_ns, last_ns), min(between_ns, max(first_ns, last_ns)))
    assert bound.most_ns >= max(first_ns, last_ns)
    assert bound.least_ns <= min(first_ns, last_ns)


def test_the_quickest_trip_is_taken() -> None:
    assert offset_of(trips(1_000, [(500, 500), (10, 30), (900, 0)])) == Offset(1_010, 20)
