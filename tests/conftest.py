"""What every test starts from: an environment in which nothing of this machine shows."""

import os

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: no test is about time.
settings.register_profile(
    "virtscale", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("virtscale")

LEAKING = ("PREFECT_", "AWS_", "KUBE", "VIRTSCALE_", "PYTEST_PLUGINS")
MEANT_FOR_TESTS = ("VIRTSCALE_TEST_", "VIRTSCALE_CRD_SCHEMAS")


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out of the environment what would point a test at a real server, cluster or account."""
    for name in list(os.environ):
        if name.startswith(LEAKING) and not name.startswith(MEANT_FOR_TESTS):
            monkeypatch.delenv(name)
