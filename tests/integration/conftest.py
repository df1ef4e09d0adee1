"""What the tests of Prefect in operation share."""

from collections.abc import Iterator

import pytest

from tests.integration.operating import Operation, operating


@pytest.fixture(scope="session")
def operation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operation]:
    """What `virtscale prefect up` starts, once for all tests: it takes half a minute."""
    with operating(tmp_path_factory.mktemp("operation")) as found:
        yield found
