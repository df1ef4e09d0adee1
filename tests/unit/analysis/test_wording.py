import pytest

from tasks.analysis.comparison import Comparison, Metric
from tasks.analysis.comparison_words import interval_text
from tasks.analysis.wording import (
    beyond,
    duration_or_beyond,
    human_duration,
    listed,
    percent,
    step_name,
    with_error,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 s"),
        (0.42, "0.42 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min"),
        (161.2, "2 min 41 s"),
        (1800.0, "30 min"),
        (3599.7, "1 h"),
        (3840.0, "1 h 04 min"),
        (-2.0, "-2.00 s"),
        (None, "not measured"),
    ],
)
def test_durations_as_people_read_them(seconds: float | None, text: str) -> None:
    assert human_duration(seconds) == text


def test_null_is_beyond_the_limit_and_zero_is_not() -> None:
    assert duration_or_beyond(None, 1800.0) == "> 30 min"
    assert duration_or_beyond(0.0, 1800.0) == "0.00 s"
    assert beyond(None) == "> limit"


def test_an_error_bound_follows_only_a_known_value() -> None:
    assert with_error(161.2, 0.1, None) == "2 min 41 s ±0.1 s"
    assert with_error(161.2, None, None) == "2 min 41 s"
    assert with_error(None, 0.1, 60.0) == "> 1 min"


def test_words() -> None:
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a"]) == "a"
    assert percent(0.714) == "71 %"
    assert (step_name("ssh_ready"), step_name("pod_scheduled")) == ("SSH ready", "pod scheduled")


@pytest.mark.parametrize(
    ("change", "low", "high", "text"),
    [
        (0.1, 0.052, 0.129, "+5.2 % to +12.9 %"),
        (0.1, None, None, "too few batches for an interval"),
        (None, None, None, "\N{EN DASH}"),
    ],
)
def test_an_interval_that_is_not_there_shows_no_numbers(
    change: float | None, low: float | None, high: float | None, text: str
) -> None:
    metric = Metric("deploy end to end", "end_to_end", "s")
    found = Comparison(metric, 0.05, change, low, high, units=2, by="sizes", sizes=())
    assert interval_text(found) == text
