"""Random draws: keyed by seed, purpose and name, the same everywhere."""

import os
import statistics
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from infra.cluster.virtual.draws import Draws

SCRIPT = (
    "from infra.cluster.virtual.draws import Draws; d = Draws(7); "
    "print([(d.uniform('a', n), d.below(10, 'b', n), d.around_s(2, .3, 'c', n)) for n in '0123456789'])"
)


def elsewhere(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_draws_are_the_same_in_every_process() -> None:
    assert elsewhere("1") == elsewhere("2")
    assert str(Draws(7).uniform("a", "0")) in elsewhere("3")


@given(seed=st.integers(0, 2**32), purpose=st.text(max_size=5), name=st.text(max_size=5))
def test_a_draw_depends_on_its_key_alone_and_stays_in_range(seed: int, purpose: str, name: str) -> None:
    draws = Draws(seed)
    first = draws.uniform(purpose, name)
    draws.uniform("something", "else")
    assert draws.uniform(purpose, name) == first == Draws(seed).uniform(purpose, name)
    assert 0 < first < 1
    assert 0 <= draws.below(3, purpose, name) < 3


def test_seed_purpose_and_name_each_make_another_draw() -> None:
    keys = [(seed, purpose, name) for seed in (1, 2) for purpose in "ab" for name in "cd"]
    assert len({Draws(seed).uniform(purpose, name) for seed, purpose, name in keys}) == 8


def test_durations_are_log_normal_around_their_median_in_whole_microseconds() -> None:
    durations = [Draws(1).around_s(4.0, 0.15, "pod start", f"vm-{n}") for n in range(2000)]
    assert 3.9 < statistics.median(durations) < 4.1
    assert len([d for d in durations if 4 / 1.1618 < d < 4 * 1.1618]) / 2000 > 0.63  # one sigma: 68 %
    assert all(d == round(d, 6) for d in durations)


def test_no_spread_and_no_duration_need_no_draw() -> None:
    assert Draws(1).around_s(4.0, 0.0, "a", "b") == 4.0
    assert Draws(1).around_s(0.0, 0.5, "a", "b") == 0.0
