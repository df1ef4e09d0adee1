"""Whether other processes take shares of a run's batches, and which; None by default."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from infra.errors import ProfileError
from infra.workers import Workers
from tasks.run import RunRequest

EXTRA = "make setup-dask"


def check_workers(request: RunRequest, *, with_prefect: bool = True) -> None:
    """Make sure that a run can have the shards that it asks for.

    Raises:
        ProfileError: it cannot; nothing was changed.
    """
    if not request.shards:
        return
    if request.spec().is_virtual:
        raise ProfileError("--workers dask: a virtual cluster has one process and one time; leave it out")
    if not with_prefect:
        raise ProfileError("--workers dask: Prefect hands out the shards; leave out --no-prefect")
    if find_spec("prefect_dask") is None:
        raise ProfileError(f"--workers dask: Dask is not installed; {EXTRA}")


@contextmanager
def workers_of(request: RunRequest) -> Iterator[None]:
    """Let the steps in this block use the workers that the run asks for.

    Raises:
        ProfileError: the run cannot have them.
        InvalidRun: Dask does not answer, or has too few.
    """
    check_workers(request)
    if not request.shards:
        yield
        return
    # Imported here: it is an extra, and large.
    from flows.dask_workers import dask_workers

    with dask_workers(request) as found:
        token = workers.set(found)
        try:
            yield
        finally:
            workers.reset(token)


workers: ContextVar[Workers | None] = ContextVar("workers", default=None)
"""A flow's parameters are plain values, so its workers cannot be one of them."""
