"""One process at a time is at work on a run: what measures is never cleaned by another."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from infra.errors import InUse
from infra.results.open import made_spool_folder, spool_folder
from infra.results.port import ObjectStore

ATTEMPTS, PAUSE_S = 3, 0.05


@contextmanager
def only_process(store: ObjectStore, run_id: str) -> Iterator[None]:
    """Hold the run for the length of the block; the kernel lets go when the process dies.

    The lock is a file of this machine: two machines on one store are told apart by the commits.

    Raises:
        InUse: another process of this machine is at work on the run.
        StoreError: this machine's part of it cannot be kept.
    """
    with (made_spool_folder(store, run_id) / "run.lock").open("w") as file:
        if not _locked(file):
            raise InUse(f"run {run_id}: another process is at work on it; wait for it or stop it")
        yield


def is_at_work(store: ObjectStore, run_id: str) -> bool:
    """Whether a process of this machine holds the run now."""
    try:
        with (spool_folder(store, run_id) / "run.lock").open() as file:
            return not _flocked(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _locked(file: IO[str]) -> bool:
    """Take the lock; whoever only looks whether it is held lets go at once."""
    for attempt in range(ATTEMPTS):
        if _flocked(file, fcntl.LOCK_EX):
            return True
        time.sleep(PAUSE_S if attempt < ATTEMPTS - 1 else 0)
    return False


def _flocked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
