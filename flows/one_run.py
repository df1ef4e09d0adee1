"""One benchmark per cluster at a time, whoever starts it and from where: a Lease in that cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from flows.outcome import alone
from flows.progress import Silent, progress
from flows.sure import sure
from infra.only_run import holder_of, only_run
from infra.results.manifest import nonce_of
from infra.results.port import ObjectStore
from tasks.run import RunRequest


@contextmanager
def one_run(request: RunRequest, store: ObjectStore) -> Iterator[Callable[[], None]]:
    """Wait until the run's cluster is free, hold it for the block; yields a check that it still is held.

    A virtual cluster is in this process, so it is always free.

    Raises:
        InUse: another machine is at work on the same run.
        VirtscaleError: the cluster does not answer, or does not let us have a lease.
    """
    if request.spec().is_virtual:
        yield alone
        return
    holder = holder_of(request.run_id, nonce_of(store, request.run_id))
    with only_run(
        request.cluster, holder, lambda other: _tell(f"{request.cluster} is in use by {other}")
    ) as held:
        before = sure.set(held.sure)
        try:
            yield held.check
        finally:
            sure.reset(before)


def _tell(text: str) -> None:
    """Whoever listens to the run hears it; a command without steps says it itself."""
    listener = progress.get()
    if isinstance(listener, Silent):
        click.echo(f"waits: {text}", err=True)
    listener.waits(text)
