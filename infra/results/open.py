"""From what `--store` says to an object store, and where the spool of a run is kept."""

from pathlib import Path

from infra.errors import StoreError
from infra.results.folder import FolderStore, open_folder
from infra.results.port import ObjectStore
from infra.settings import cache_dir


def open_store(address: str, *, writable: bool = True) -> ObjectStore:
    """Open the store at `address` (a folder) and find out now whether it can be used.

    A store that is only read (`writable` False) must exist already, and may be read-only.

    Raises:
        StoreError: it cannot be used; the text says why and what to do.
    """
    scheme, separator, _ = address.partition("://")
    if separator and scheme == "s3":
        raise StoreError(f"store {address}: s3:// comes with “Results in S3”, not yet; name a folder")
    if separator:
        raise StoreError(f"store {address}: {scheme}:// is not supported; name a folder")
    if not address.strip():
        raise StoreError("store: no folder is named; give --store FOLDER")
    return open_folder(Path(address).expanduser(), writable=writable)


def spool_folder(store: ObjectStore, run_id: str) -> Path:
    """Where attempts of a run are spooled: in the store if it is a folder, else on this machine."""
    home = store.root if isinstance(store, FolderStore) else cache_dir()
    return home / "_spool" / run_id
