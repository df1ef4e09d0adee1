"""The keys of a run: our own pair, made once, and the guests' host keys as they were first seen.

They live in the state folder (`VIRTSCALE_STATE`), readable by their owner alone, never in a store.
"""

import os
from pathlib import Path

import asyncssh
import orjson

from infra.errors import GuestError

ALGORITHM = "ecdsa-sha2-nistp256"
"""Guests in FIPS mode take it, too (no ed25519 there)."""
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def ensure_key(folder: Path) -> asyncssh.SSHKey:
    """The run's own key; made where there is none.

    Raises:
        GuestError: the folder cannot be written, or its key cannot be read.
    """
    path = folder / "key"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make_key(path)
        return asyncssh.read_private_key(path)
    except (OSError, asyncssh.KeyImportError) as error:
        raise GuestError(f"{path}: the run's SSH key cannot be used: {error}") from error


def _make_key(path: Path) -> None:
    """Two processes may be at it: the first link wins, and a torn file is never seen."""
    draft = path.with_name(f"key.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(asyncssh.generate_private_key(ALGORITHM, "virtscale").export_private_key())
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def public_line(key: asyncssh.SSHKey) -> str:
    """The public half as a line of authorized_keys."""
    return key.export_public_key().decode().strip()


class HostKeys:
    """Host key of each VM, recorded when it is first seen; appended to a file, one JSON array a line.

    A VM that is made anew, under the name of one before it, has no key yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str | None] = {}
        if path.exists():
            whole = path.read_bytes().rpartition(b"\n")[0]
            self._known.update(orjson.loads(line) for line in whole.splitlines())

    def is_same(self, vm: str, key: asyncssh.SSHKey) -> bool:
        """Whether a VM shows the key that it showed first; the first is remembered."""
        line = public_line(key)
        known = self._known.get(vm)
        if known is None:
            self._record(vm, line)
        return known in (None, line)

    def forget(self, vm: str) -> None:
        """A VM is made: whatever had its name before is gone."""
        if self._known.get(vm) is not None:
            self._record(vm, None)

    def _record(self, vm: str, line: str | None) -> None:
        self._known[vm] = line
        with os.fdopen(os.open(self._path, _APPEND, 0o600), "ab") as file:
            file.write(orjson.dumps((vm, line)) + b"\n")
