"""One process at a time is at work on a run: what measures is never cleaned by another."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from infra.errors import InUse
from infra.results.open import spool_folder
from infra.results.port import ObjectStore


@contextmanager
def only_process(store: ObjectStore, run_id: str) -> Iterator[None]:
    """Hold the run for the length of the block; the kernel lets go when the process dies.

    The lock is a file of this machine: two machines on one store are told apart by the commits.

    Raises:
        InUse: another process of this machine is at work on the run.
    """
    folder = spool_folder(store, run_id)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "run.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InUse(f"run {run_id}: another process is at work on it; wait for it or stop it") from error
        yield
