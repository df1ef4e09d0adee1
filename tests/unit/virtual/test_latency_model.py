"""What virtual guests' latency tools measure: mechanisms, and maxima that come from how often one looks."""

import json
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.realtime import Latency
from infra.errors import GuestError
from infra.guests.programs import cyclictest, jitterdebugger, l2reflect, oslat, stress_ng
from infra.guests.programs.delays import count_of, drawn
from infra.guests.programs.tool_run import ToolRun, seconds_of, wake_ups
from tasks.latency_rows import reflected
from tasks.tool_output.cyclictest import parse_cyclictest
from tasks.tool_output.jitterdebugger import parse_jitterdebugger
from tasks.tool_output.oslat import parse_oslat
from tasks.tool_output.stress_ng import parse_stress_ng

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
DAY_S = 86_400


def run(arguments: str, seconds: float, seed: int = 1, model: Latency | None = None) -> ToolRun:
    words = tuple(arguments.split())
    return ToolRun("vm", "seg", words, STARTED, seconds, True, model or Latency(), Draws(seed))


def jitter_max(seconds: float, seed: int, model: Latency | None = None) -> int:
    body = jitterdebugger.result(run("-D 1s -a 2-3", seconds, seed, model))
    return max(int(thread["max"]) for thread in json.loads(body)["cpu"].values())


@pytest.mark.parametrize("seed", range(8))
def test_three_days_of_a_timer_come_within_a_tenth_of_the_published_maxima(seed: int) -> None:
    assert 55 * 0.9 <= jitter_max(3 * DAY_S, seed) <= 54 * 1.1


@pytest.mark.parametrize("seed", range(4))
def test_five_days_of_a_frame_come_within_a_tenth_of_the_published_maximum(seed: int) -> None:
    found = l2reflect.rounds(run("-F f", 5 * DAY_S, seed))
    assert 65 * 0.9 <= max(found) <= 65 * 1.1


def test_maxima_grow_with_the_time_that_is_looked() -> None:
    mean = [sum(jitter_max(s, seed) for seed in range(12)) / 12 for s in (60, 3600, DAY_S, 3 * DAY_S)]
    assert mean == sorted(mean)
    assert mean[0] < 20 < 45 < mean[-1]


def test_without_stalls_three_days_stay_below_a_third_of_the_published_maximum() -> None:
    assert jitter_max(3 * DAY_S, 1, Latency(stall_per_s=0.0)) < 55 / 3


def test_noise_makes_the_tail_of_the_ordinary_path_longer() -> None:
    noisy, quiet = wake_ups(Latency(), True), wake_ups(Latency(), False)
    assert sum(noisy[8:12]) > 10 * sum(quiet[8:12])


@given(st.integers(1, 10**12), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_drawn_histogram_holds_every_sample(samples: int, seed: int) -> None:
    assert sum(drawn(Draws(seed), "x", samples, wake_ups(Latency(), True)).values()) == samples


@given(st.floats(1e-9, 1e9), st.floats(1e-12, 1 - 1e-12))
def test_a_count_is_never_negative_and_near_its_mean(mean: float, uniform: float) -> None:
    assert 0 <= count_of(mean, uniform) <= mean + 8 * mean**0.5 + 30


def test_a_later_file_of_one_process_holds_every_earlier_one() -> None:
    files = [l2reflect.rounds(run("-F f", seconds)) for seconds in (1, 10, 3599, 3601.5, 3700, 9000)]
    for early, late in pairwise(files):
        assert all(late.get(value, 0) >= count for value, count in early.items())


def test_the_parsers_of_real_output_read_every_tool() -> None:
    jitter = parse_jitterdebugger(jitterdebugger.result(run("-D 60s -a 2-3", 60)), (2, 3))
    assert [(thread.cpu, thread.n) for thread in jitter.threads] == [(2, 60_000), (3, 60_000)]
    cyclic = parse_cyclictest(cyclictest.result(run("-i 500 -h 1000 -a 1,3 -D 60s", 60)))
    assert [thread.n for thread in cyclic.threads] == [120_000, 120_000]
    busy = parse_oslat(oslat.result(run("-c 2-3 -b 128 -D 1h --json=f", 3600)))
    assert busy.durations_s == (3600.0, 3600.0)
    assert all(thread.max_ns and thread.max_ns > 45_000 for thread in busy.threads)
    frame = reflected(l2reflect.result(run("-H 1 -B 2000 -F f", 60)))
    assert (frame.warm_up, frame.overflow) == (41, 0)
    stress = parse_stress_ng(stress_ng.result(run("--cpu 2 --vm 1 --metrics --yaml f", 60)))
    assert [stressor.name for stressor in stress.stressors] == ["cpu", "vm"]


def test_short_histograms_of_the_tools_overflow_as_the_real_ones_do() -> None:
    slow = Latency(wake_us=3000.0)
    thread = parse_jitterdebugger(jitterdebugger.result(run("-D 9s -a 2", 0.5, model=slow)), (2,)).threads[0]
    assert thread.overflow == thread.n == 500
    few = parse_oslat(oslat.result(run("-c 2 -b 32 -D 1h", 3600))).threads[0]
    assert few.overflow is not None
    assert few.overflow > 0


@pytest.mark.parametrize("text", ["10", "1h30m", "2w", "", "-3s"])
def test_durations_that_the_tools_read_wrongly_are_refused(text: str) -> None:
    with pytest.raises(GuestError, match="a whole number and one of s, m, h, d"):
        seconds_of(text)
