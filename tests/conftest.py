"""What every test starts from: an environment in which nothing of this machine shows."""

import os
import time

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: no test is about time.
settings.register_profile(
    "virtscale", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("virtscale")

LEAKING = ("PREFECT_", "AWS_", "KUBE", "VIRTSCALE_", "PYTEST_PLUGINS")
MEANT_FOR_TESTS = ("VIRTSCALE_TEST_", "VIRTSCALE_CRD_SCHEMAS")

CLOCK_SET_S = 0.02
offset_at_start_s = 0.0


def clock_offset_s() -> float:
    """How far the wall clock is from the clock that nobody sets."""
    return time.time() - time.monotonic()


def clock_was_set() -> bool:
    """Whether this machine's clock was set since the test began."""
    return abs(clock_offset_s() - offset_at_start_s) > CLOCK_SET_S


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the clock that the test starts with."""
    global offset_at_start_s
    offset_at_start_s = clock_offset_s()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test that failed while the clock was set try again: its run was rightly invalid."""
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=2, condition=clock_was_set))


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out of the environment what would point a test at a real server, cluster or account."""
    for name in list(os.environ):
        if name.startswith(LEAKING) and not name.startswith(MEANT_FOR_TESTS):
            monkeypatch.delenv(name)
