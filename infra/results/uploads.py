"""A run's view of a store that may go away: what the run wrote or read is at hand, writes are sent behind.

While the store answers, a commit returns when the store has it, so nothing is uploaded while the next batch
is measured. On virtual time uploading disturbs nothing: there the run goes on at once, a few commits ahead of
the answers, and a batch's spool stays until its commit is stored. When the store does not answer, what was
written is kept in the outbox, the run goes on, and it is sent, in order, as soon as the store answers again.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.results.active import ACTIVE
from infra.results.commits import attempt_of
from infra.results.folder import FolderStore
from infra.results.left import send_left
from infra.results.lock import only_process
from infra.results.open import spool_folder
from infra.results.outbox import Kind, Outbox, Write
from infra.results.port import ObjectStore
from infra.results.sending import AT_A_TIME, Sender, Spent

if TYPE_CHECKING:
    from infra.results.s3 import S3Store


@contextmanager
def uploading(
    store: ObjectStore,
    run_id: str,
    folders: Iterable[str],
    tell: Callable[[str], None],
    *,
    virtual_time: bool = False,
) -> Iterator[ObjectStore]:
    """The store as a run uses it: a folder as it is, anything else through an `UploadingStore`.

    What an earlier process of the run left is sent first, and `folders` (of keys) are listed while the store
    answers. On `virtual_time` a commit does not wait for its answer. At the end everything is waited for,
    unless the store stays away. `tell` gets one line when there is something to wait for.

    Raises:
        StoreError: the store does not take what an earlier process left, or the run was deleted from it.
        StageError: the store stayed away; everything is on this machine.
    """
    if isinstance(store, FolderStore | UploadingStore):
        yield store
        return
    outbox = Outbox(spool_folder(store, run_id) / "outbox")
    sender = Sender(store, outbox)  # type: ignore[arg-type]
    uploads = UploadingStore(store, outbox, sender, virtual_time)  # type: ignore[arg-type]
    try:
        send_left(store, outbox, run_id, tell)  # type: ignore[arg-type]
        sender.start()
        uploads.look_around(folders)
        uploads.release_committed(run_id)
        ACTIVE[store.address("")] = uploads
        yield uploads
        sender.wait_for_all(tell)
    finally:
        ACTIVE.pop(store.address(""), None)
        sender.close()


def waiting_writes(store: ObjectStore, run_id: str) -> int:
    """How many writes of a run are kept on this machine because the store was away."""
    return len(Outbox(spool_folder(store, run_id) / "outbox").waiting())


def send_kept(store: ObjectStore, run_id: str, tell: Callable[[str], None]) -> None:
    """Before a command looks at a run: send what an earlier process of this machine kept of it, if anything.

    Raises:
        InUse: another process is at work on the run, or has committed one of its batches.
        StoreError: the store does not take it, or the run was deleted from it.
    """
    if isinstance(store, FolderStore | UploadingStore) or not waiting_writes(store, run_id):
        return
    outbox = Outbox(spool_folder(store, run_id) / "outbox")
    with only_process(store, run_id):
        send_left(store, outbox, run_id, tell)  # type: ignore[arg-type]
        outbox.remove()


def upload_cost(store: ObjectStore) -> dict[str, Any] | None:
    """What uploading has cost this process so far; None for a folder."""
    return store.cost() if isinstance(store, UploadingStore) else None


class UploadingStore:
    """An `infra.results.port.ObjectStore` over another; any thread may use it."""

    parallel = AT_A_TIME

    def __init__(self, remote: "S3Store", outbox: Outbox, sender: Sender, virtual_time: bool) -> None:
        self.remote = remote
        self._virtual_time = virtual_time
        self._outbox, self._sender = outbox, sender
        self._at_hand: set[str] = set()
        self._listed: dict[str, set[str]] = {}
        self._looking = threading.Lock()

    def look_around(self, folders: Iterable[str]) -> None:
        """List these folders of keys now: later the store may be away."""
        names = list(folders)
        for name, keys in zip(names, self._sender.pool.map(self.remote.keys, names), strict=True):
            self._listed[name] = set(keys)

    def release_committed(self, run_id: str) -> None:
        """Remove the spools of a process that died between a commit's answer and its spool's end."""
        for key in self.keys(f"_commits/{run_id}/"):
            self.release(key, self._outbox.folder.parent / f"{attempt_of(key)}.spool")

    def put(self, key: str, body: bytes) -> None:
        """Write whole, replacing an older one."""
        self._write("put", key, body)

    def put_new(self, key: str, body: bytes) -> bool:
        """Write only if the key is free; True stands until a store says otherwise that is not waited for.

        Raises:
            InUse: the store has said otherwise of an earlier one.
        """
        return False if self._is_there(key) else self._write("put_new", key, body)

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None when there is none."""
        if key in self._at_hand:
            return self._outbox.held(key)
        body = None if self._is_there(key) is False else self.remote.get(key)
        if body is not None:
            self._outbox.hold(key, body)
            with self._looking:
                self._at_hand.add(key)
        return body

    def keys(self, prefix: str) -> list[str]:
        """All keys that start with `prefix`, sorted: as listed once, and as this run wrote since."""
        folder = prefix[: prefix.rfind("/") + 1]
        if folder not in self._listed:
            # Not inside the lock: it is a request.
            found = set(self.remote.keys(folder))
            with self._looking:
                self._listed.setdefault(
                    folder, found | {key for key in self._at_hand if key.startswith(folder)}
                )
        with self._looking:
            return sorted(key for key in self._listed[folder] if key.startswith(prefix))

    def written(self, prefix: str) -> list[tuple[datetime, str]]:
        """As the store itself: what waits is not in it."""
        return self.remote.written(prefix)

    def delete(self, key: str) -> None:
        """Remove, in a while; no error when it is gone already."""
        with self._looking:
            # Its body may still have to be sent before it is deleted.
            self._at_hand.discard(key)
            for listed in self._listed.values():
                listed.discard(key)
        self._sender.enqueue("delete", key)

    def release(self, key: str, path: Path) -> None:
        """Remove a file of this machine as soon as the store has the object, or it is kept on the disk."""
        self._sender.release(key, path)

    def address(self, key: str) -> str:
        """The object's address in the store itself."""
        return self.remote.address(key)

    def scan_options(self) -> dict[str, str]:
        """As the store itself."""
        return self.remote.scan_options()

    def cost(self) -> dict[str, Any]:
        """What the manifest keeps."""
        traffic = self.remote.traffic
        seconds = {name: round(getattr(self._sender.spent, name), 3) for name in Spent.__slots__}
        return {
            "requests": dict(sorted(traffic.requests.items())),
            "sent_bytes": traffic.sent_bytes,
            "received_bytes": traffic.received_bytes,
            "resent": traffic.resent,
            **seconds,
        }

    def _write(self, kind: Kind, key: str, body: bytes) -> bool:
        self._outbox.hold(key, body)
        with self._looking:
            self._at_hand.add(key)
            for folder, listed in self._listed.items():
                if key.startswith(folder):
                    listed.add(key)
        write = self._sender.enqueue(kind, key)
        won = self._answer(write)
        if not won:
            self._forget_attempt(attempt_of(key))
        return won

    def _answer(self, write: Write) -> bool:
        if write.commits and self._virtual_time and not write.done:
            return self._sender.rely_on(write)
        return self._sender.settled(write) if write.decides or write.done else True

    def _forget_attempt(self, attempt: str) -> None:
        """What is stored of it is another's."""
        with self._looking:
            mine = {key for key in self._at_hand if attempt_of(key) == attempt}
            self._at_hand -= mine
        for key in mine:
            self._outbox.drop(key)

    def _is_there(self, key: str) -> bool | None:
        """Whether the store has a key, as far as this run knows; None: it was not looked at."""
        with self._looking:
            if key in self._at_hand:
                return True
            listings = [listed for folder, listed in self._listed.items() if key.startswith(folder)]
        return key in listings[0] if listings else None
