"""Room for a batch's rows on this machine: asked for before it is measured, never found missing after."""

import shutil
from contextlib import suppress
from pathlib import Path

from infra.errors import StoreError
from infra.results.folder import store_errors
from infra.results.port import Cell
from infra.settings import spool_mib

BYTES_PER_VM = 4096
"""Spooled rows of one VirtualMachine of a batch and of its objects, as text: 1,300 were measured."""
BYTES_PER_ATTEMPT = 1 << 20
MIB = 1 << 20


def check_room(spool_dir: Path, cell: Cell) -> None:
    """Nothing when the rows of one more attempt of `cell` fit.

    Raises:
        StoreError: the disk, or what the spool may hold, is too full for them.
    """
    needed = needed_bytes(cell)
    with store_errors(spool_dir, "written"):
        spool_dir.mkdir(parents=True, exist_ok=True)
        free, used = shutil.disk_usage(spool_dir).free, _size(spool_dir)
    bound = spool_mib() * MIB
    what = f"spool {spool_dir}: {cell.stage} {cell.cell} needs up to {_mib(needed)} MiB"
    if used + needed > bound:
        raise StoreError(
            f"{what} and {_mib(used)} of VIRTSCALE_SPOOL_MIB={spool_mib()} are taken; raise it, "
            "or wait until the store has what is spooled"
        )
    if needed > free:
        raise StoreError(f"{what} and {_mib(free)} MiB are free on the disk; make room")


def needed_bytes(cell: Cell) -> int:
    """At most what one attempt spools: by VirtualMachine, where the cell starts with their number."""
    vms = cell.cell.partition("-")[0]
    return BYTES_PER_ATTEMPT + (int(vms) * BYTES_PER_VM if vms.isdecimal() else 0)


def _size(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        # A file of the outbox may be sent and removed meanwhile.
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def _mib(size: int) -> int:
    return -(-size // MIB)
