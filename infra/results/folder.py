"""The object store over a local folder: what is written is whole, and what is new is decided by one link."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from infra.errors import StoreError

SECRET_PREFIX = "_ledger/"
"""Keys below it are readable by their owner only (0600)."""


def open_folder(root: Path, *, writable: bool = True) -> "FolderStore":
    """Open a folder, making it where it has to be written, and try out what will be needed.

    Raises:
        StoreError: not a folder, unreadable, or (if `writable`) not writable.
    """
    root = root.absolute()
    with store_errors(root, "written" if writable else "read"):
        if writable:
            root.mkdir(parents=True, exist_ok=True)
        elif not root.exists():
            raise StoreError(f"store {root}: there is no such folder; choose another --store")
        elif not root.is_dir():
            raise NotADirectoryError
    with store_errors(root, "read"), os.scandir(root):
        pass
    store = FolderStore(root)
    if writable:
        store.try_writing()
    return store


@contextmanager
def store_errors(place: Path, verb: str) -> Iterator[None]:
    """Turn the operating system's errors into one line that names the store (or a file of it)."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreError(
            f"store {error.filename or place}: is not a folder; choose another --store"
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StoreError(f"store {place}: cannot be {verb} ({reason}); choose another --store") from error


class FolderStore:
    """An `infra.results.port.ObjectStore` whose keys are paths below `root`.

    Names that start with a dot are drafts (of a write that was killed, or of other programs): no keys.
    """

    parallel = 1

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, body: bytes) -> None:
        """Write whole, replacing an older one, by a rename."""
        with store_errors(self.root, "written"), self._draft(key, body) as draft:
            draft.replace(self._path(key))

    def put_new(self, key: str, body: bytes) -> bool:
        """Write only if the key is free, by a link, which fails when the name exists."""
        with store_errors(self.root, "written"), self._draft(key, body) as draft:
            try:
                os.link(draft, self._path(key))
            except FileExistsError:
                return False
        return True

    def get(self, key: str) -> bytes | None:
        """The file's bytes; None when there is no such file."""
        with store_errors(self.root, "read"):
            try:
                return self._path(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def keys(self, prefix: str) -> list[str]:
        """All keys that start with `prefix`, sorted; drafts are left out."""
        folder = prefix.rpartition("/")[0]
        with store_errors(self.root, "read"):
            found = [self._key(path) for path in _files(self._path(folder))]
        return sorted(key for key in found if key.startswith(prefix))

    def written(self, prefix: str) -> list[tuple[datetime, str]]:
        """All keys that start with `prefix`, each with when it was written last, oldest first."""
        found: list[tuple[datetime, str]] = []
        for key in self.keys(prefix):
            # Another process may be deleting it.
            with suppress(FileNotFoundError):
                found.append((datetime.fromtimestamp(self._path(key).stat().st_mtime, UTC), key))
        return sorted(found)

    def delete(self, key: str) -> None:
        """Remove the file; no error when it is gone already."""
        with store_errors(self.root, "written"), suppress(NotADirectoryError):
            self._path(key).unlink(missing_ok=True)

    def release(self, key: str, path: Path) -> None:
        """Remove the file now: what was written is on the disk."""
        with store_errors(path, "written"):
            path.unlink(missing_ok=True)

    def address(self, key: str) -> str:
        """The file's absolute path."""
        return str(self._path(key))

    def scan_options(self) -> dict[str, str]:
        """None: an address is a path."""
        return {}

    def try_writing(self) -> None:
        """Write, link and remove one file: a folder that refuses a link could not hold commits.

        Raises:
            StoreError: the folder refuses one of these.
        """
        key = f".try-{secrets.token_hex(4)}"
        self.put_new(key, b"")
        self.delete(key)

    def _path(self, key: str) -> Path:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} leads out of the store")
        return self.root / key

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @contextmanager
    def _draft(self, key: str, body: bytes) -> Iterator[Path]:
        path = self._path(key)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_new(draft, body, 0o600 if key.startswith(SECRET_PREFIX) else 0o666)
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def _write_new(path: Path, body: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(descriptor)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_unless_gone):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
