"""From what `--store` says to an object store, and where the spool of a run is kept."""

import hashlib
from pathlib import Path

from infra.errors import StoreError
from infra.results.active import ACTIVE
from infra.results.folder import FolderStore, open_folder
from infra.results.port import ObjectStore
from infra.settings import s3, state_dir


def open_store(address: str, *, writable: bool = True) -> ObjectStore:
    """Open the store at `address` (a folder or `s3://bucket/prefix`) and find out now whether it can be used.

    A store that is only read (`writable` False) must exist already, and may be read-only.

    Raises:
        StoreError: it cannot be used; the text says why and what to do.
    """
    scheme, separator, _ = address.partition("://")
    if separator and scheme == "s3":
        return ACTIVE.get(f"{address.rstrip('/')}/") or _s3(address, writable)
    if separator:
        raise StoreError(
            f"store {address}: {scheme}:// is not supported; name a folder or s3://BUCKET/PREFIX"
        )
    if not address.strip():
        raise StoreError("store: no folder is named; give --store FOLDER")
    return open_folder(Path(address).expanduser(), writable=writable)


def _s3(address: str, writable: bool) -> ObjectStore:
    # Imported here: boto3 takes half a second, and a folder does without it.
    from infra.results.s3 import open_s3

    return open_s3(address, s3(), writable=writable)


def spool_folder(store: ObjectStore, run_id: str) -> Path:
    """Where attempts of a run are spooled: in the store if it is a folder, else on this machine."""
    if isinstance(store, FolderStore):
        return store.root / "_spool" / run_id
    # Runs of two buckets may have one id.
    mark = hashlib.sha256(store.address("").encode()).hexdigest()[:12]
    return state_dir() / "spool" / mark / run_id


def made_spool_folder(store: ObjectStore, run_id: str) -> Path:
    """That folder, made if there is none.

    Raises:
        StoreError: it cannot be made.
    """
    folder = spool_folder(store, run_id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "another --store" if isinstance(store, FolderStore) else "another folder in VIRTSCALE_STATE"
        raise StoreError(f"spool {folder}: cannot be written ({error.strerror}); choose {what}") from error
    return folder
