"""Room for a batch's rows on this machine: taken before it is measured, never found missing after.

It is taken by the length of the attempt's spool, a file with a hole that its rows fill; stages side by side
take theirs one after another.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infra.errors import StoreError
from infra.results.folder import store_errors
from infra.results.port import Cell
from infra.settings import spool_mib

BYTES_PER_VM = 4096
"""Spooled rows of one VirtualMachine of a batch and of its objects, as text: 1,300 were measured."""
BYTES_PER_ATTEMPT = 1 << 20
BYTES_PER_BLOCK = 512
"""Of `st_blocks`, whatever the file system's own blocks are."""
MIB = 1 << 20


@contextmanager
def room_for(spool_dir: Path, cell: Cell) -> Iterator[int]:
    """The bytes that one more attempt of `cell` may need; nobody else takes room until the block ends.

    Raises:
        StoreError: the disk, or what the spool may hold, is too full for them.
    """
    with store_errors(spool_dir, "written"):
        spool_dir.mkdir(parents=True, exist_ok=True)
        folder = os.open(spool_dir, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        needed = needed_bytes(cell)
        _check(spool_dir, cell, needed)
        yield needed
    finally:
        os.close(folder)


def check_room(spool_dir: Path, cells: Iterable[Cell]) -> None:
    """Nothing when the largest of these attempts would fit now: what a run would find out after hours.

    Raises:
        StoreError: it would not.
    """
    with room_for(spool_dir, max(cells, key=needed_bytes)):
        return


def _check(spool_dir: Path, cell: Cell, needed: int) -> None:
    with store_errors(spool_dir, "written"):
        free, (used, promised) = shutil.disk_usage(spool_dir).free, _taken(spool_dir)
    free -= promised
    bound = spool_mib() * MIB
    what = f"spool {spool_dir}: {cell.stage} {cell.cell} needs up to {_mib(needed)} MiB"
    if used + needed > bound:
        raise StoreError(
            f"{what} and {_mib(used)} of VIRTSCALE_SPOOL_MIB={spool_mib()} are taken; raise it, "
            "or wait until the store has what is spooled"
        )
    if needed > free:
        raise StoreError(f"{what} and {max(free, 0) // MIB} MiB are free on the disk; make room")


def needed_bytes(cell: Cell) -> int:
    """At most what one attempt spools: by VirtualMachine, where the cell starts with their number."""
    vms = cell.cell.partition("-")[0]
    return BYTES_PER_ATTEMPT + (int(vms) * BYTES_PER_VM if vms.isdecimal() else 0)


def _taken(folder: Path) -> tuple[int, int]:
    """Bytes of all files, and how many of them are holes: the disk still counts those as free."""
    used = promised = 0
    for path in folder.rglob("*"):
        # A file of the outbox may be sent and removed meanwhile.
        with suppress(FileNotFoundError):
            found = path.stat()
            used += found.st_size
            promised += max(0, found.st_size - found.st_blocks * BYTES_PER_BLOCK)
    return used, promised


def _mib(size: int) -> int:
    return -(-size // MIB)
