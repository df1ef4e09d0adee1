"""The spool: an append-only file that holds an attempt's rows from the moment they are known.

A frame is the payload's length and CRC-32 (both little-endian uint32), then the payload, JSON of
[table, its rows by column]. Every `append` is one write to the operating system, so a killed process
loses nothing; the disk is synced at most once a second and on `flush`, so a machine that fails loses a
second. Recovery takes frames up to the first that is torn.

The open file is locked: a spool that can be locked belongs to nobody who still lives.
"""

import fcntl
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from infra.errors import InUse
from infra.results.folder import store_errors

SYNC_EVERY_S = 1.0
_HEAD = struct.Struct("<II")
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY

Columns = dict[str, list[Any]]
"""Some rows by column, all of one length: less text than row by row, and read sooner."""

Frame = tuple[str, Columns]
"""A table and some of its rows; instants are text again (ISO 8601)."""


class Spool:
    """An open, locked spool file; use `create_spool` or `reopen_spool`."""

    def __init__(self, path: Path, file: FileIO, size: int = 0) -> None:
        self.path = path
        self._file = file
        self._size = size
        self._synced_at_s = time.monotonic()
        self._syncing: Future[None] | None = None
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="spool")

    def append(self, table: str, rows: Columns) -> None:
        """Add one frame; it survives this process when this returns.

        Raises:
            StoreError: it could not be written; the spool is as it was before.
        """
        payload = orjson.dumps((table, rows), option=_OPTIONS)
        with store_errors(self.path, "written"):
            self._write(_HEAD.pack(len(payload), zlib.crc32(payload)) + payload)
            if time.monotonic() - self._synced_at_s >= SYNC_EVERY_S:
                self._sync_soon()

    def end(self) -> None:
        """No more rows come: give back the room that they did not need.

        Raises:
            StoreError: the disk refuses.
        """
        with store_errors(self.path, "written"):
            os.ftruncate(self._file.fileno(), self._size)

    def flush(self) -> None:
        """Return when all frames are on the disk.

        Raises:
            StoreError: the disk refuses.
        """
        with store_errors(self.path, "written"):
            self._wait_for_sync()
            os.fsync(self._file.fileno())
        self._synced_at_s = time.monotonic()

    def flush_soon(self) -> None:
        """Have all frames brought to the disk while the caller goes on.

        Raises:
            StoreError: the disk has refused before.
        """
        with store_errors(self.path, "written"):
            if self._syncing is not None and self._syncing.done():
                self._wait_for_sync()
            self._syncing = self._syncer.submit(os.fsync, self._file.fileno())
        self._synced_at_s = time.monotonic()

    def close(self) -> None:
        """Let go of the file and its lock; what it holds stays for the next attempt to find."""
        self._syncer.shutdown()
        self._file.close()

    def remove(self) -> None:
        """Delete it: its rows are committed. The lock is let go after that, never before."""
        with store_errors(self.path, "written"):
            self.path.unlink(missing_ok=True)
        self.close()

    def set_aside(self) -> None:
        """Keep it for the ledger only: another process has committed this attempt."""
        with store_errors(self.path, "written"):
            self.path.replace(self.path.with_suffix(".lost"))
        self.close()

    def _write(self, frame: bytes) -> None:
        written = 0
        try:
            while written < len(frame):
                written += os.pwrite(self._file.fileno(), memoryview(frame)[written:], self._size + written)
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(frame)

    def _sync_soon(self) -> None:
        # In a thread: a slow disk must not hold up the loop that observes.
        if self._syncing is not None and not self._syncing.done():
            return
        self._wait_for_sync()
        self._syncing = self._syncer.submit(os.fsync, self._file.fileno())
        self._synced_at_s = time.monotonic()

    def _wait_for_sync(self) -> None:
        if self._syncing is not None:
            self._syncing.result()
            self._syncing = None


def create_spool(path: Path, room: int = 0) -> Spool:
    """Make a new spool that takes `room` bytes, as a hole; it has its lock before it has its name.

    Raises:
        StoreError: it exists (another process was first), or cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with store_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = FileIO(draft, "xb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(room)
            os.link(draft, path)
        except FileExistsError as error:
            file.close()
            raise _in_use(path) from error
        finally:
            draft.unlink()
    return Spool(path, file)


def reopen_spool(path: Path) -> Spool | None:
    """Take over what a killed process left, cut back to its last whole frame; None when it is gone.

    Raises:
        StoreError: a living process holds it, or it cannot be read.
    """
    with store_errors(path, "read"):
        try:
            file = FileIO(path, "r+b")
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise _in_use(path) from error
        if not _still_named(path, file):
            file.close()
            return None
        end = _end_of_frames(file.readall())
        file.truncate(end)
    return Spool(path, file, end)


def read_spool(path: Path) -> Iterator[Frame]:
    """The whole frames of a spool, open or not, in their order; nothing when there is no such file."""
    with store_errors(path, "read"):
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            return
    for payload in _payloads(body):
        table, rows = orjson.loads(payload)
        yield table, rows


def _payloads(body: bytes) -> Iterator[memoryview]:
    view, at = memoryview(body), 0
    while at + _HEAD.size <= len(view):
        length, checksum = _HEAD.unpack_from(view, at)
        payload = view[at + _HEAD.size : at + _HEAD.size + length]
        # A length of 0 is what a disk full of zeros looks like.
        if length == 0 or len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield payload
        at += _HEAD.size + length


def _end_of_frames(body: bytes) -> int:
    return sum(_HEAD.size + len(payload) for payload in _payloads(body))


def _still_named(path: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _in_use(path: Path) -> InUse:
    return InUse(
        f"store {path}: another process is at work on {path.stem} of this run; "
        "wait for it, or choose another --run-id"
    )
