"""A run's writes to a store that may go away: sent by another thread, kept here until they arrived.

While the store answers, a commit returns when the store has it, so nothing is uploaded while the next batch
is measured. When it does not, what was written is kept in the outbox, the run goes on, and the thread sends
it, in order, as soon as the store answers again.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.errors import InUse, StageError, StoreAway, StoreError
from infra.results.active import ACTIVE
from infra.results.folder import FolderStore
from infra.results.open import spool_folder
from infra.results.outbox import Kind, Outbox, Write
from infra.results.port import ObjectStore

if TYPE_CHECKING:
    from infra.results.s3 import S3Store

AT_A_TIME = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


@contextmanager
def uploading(
    store: ObjectStore, run_id: str, folders: Iterable[str], tell: Callable[[str], None]
) -> Iterator[ObjectStore]:
    """The store as a run uses it: a folder as it is, anything else through an `UploadingStore`.

    What an earlier process of the run left is sent first, and `folders` (of keys) are listed while the store
    answers. At the end everything is waited for, unless the store stays away. `tell` gets one line when there
    is something to wait for.

    Raises:
        StoreError: the store does not take what an earlier process left.
        StageError: the store stayed away; everything is on this machine.
    """
    if isinstance(store, FolderStore | UploadingStore):
        yield store
        return
    outbox = Outbox(spool_folder(store, run_id) / "outbox")
    uploads = UploadingStore(store, outbox)  # type: ignore[arg-type]
    uploads.send_what_was_left()
    uploads.look_around(folders)
    ACTIVE[store.address("")] = uploads
    try:
        yield uploads
        uploads.wait_for_all(tell)
    finally:
        del ACTIVE[store.address("")]
        uploads.close()


def waiting_writes(store: ObjectStore, run_id: str) -> int:
    """How many writes of a run are kept on this machine because the store was away."""
    return len(Outbox(spool_folder(store, run_id) / "outbox").waiting())


def upload_cost(store: ObjectStore) -> dict[str, Any] | None:
    """What uploading has cost this process so far; None for a folder."""
    return store.cost() if isinstance(store, UploadingStore) else None


@dataclass(slots=True)
class Spent:
    """Seconds: the run's waiting, CPU of uploading, CPU of it while the run went on, no answer."""

    waited_s: float = 0.0
    cpu_s: float = 0.0
    behind_cpu_s: float = 0.0
    away_s: float = 0.0


class UploadingStore:
    """An `infra.results.port.ObjectStore` over another; what this process wrote or read is read from disk."""

    parallel = AT_A_TIME

    def __init__(self, remote: "S3Store", outbox: Outbox) -> None:
        self.remote = remote
        self.spent = Spent()
        self._outbox = outbox
        self._queue: list[Write] = []
        self._at_hand: set[str] = set()
        self._listed: dict[str, set[str]] = {}
        self._number = max((write.number for write in outbox.waiting()), default=0)
        self._waiters = 0
        self._away = ""
        self._may_return = True
        self._lost = ""
        self._closing = False
        self._claimed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="uploads", daemon=True)
        self._pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="upload")

    def send_what_was_left(self) -> None:
        """Send what an earlier process left, then start.

        Raises:
            InUse: another process has committed one of its batches; what was left is set aside.
            StoreError: the store does not take it.
        """
        left = self._outbox.waiting()
        for write in left:
            if not self._send(write):
                self._outbox.set_aside()
                raise InUse(
                    f"store {self.remote.address(write.key)}: another process has committed it, so what this "
                    f"machine had measured is set aside beside {self._outbox.folder}; start this run again"
                )
            self._outbox.sent(write)
        self._outbox.start_afresh()
        self._thread.start()

    def look_around(self, folders: Iterable[str]) -> None:
        """List these folders of keys now: later the store may be away."""
        names = list(folders)
        for name, keys in zip(names, self._pool.map(self.remote.keys, names), strict=True):
            self._listed[name] = set(keys)

    def put(self, key: str, body: bytes) -> None:
        """Write whole, replacing an older one."""
        self._write("put", key, body)

    def put_new(self, key: str, body: bytes) -> bool:
        """Write only if the key is free; while the store is away, True stands until it says otherwise.

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
            self._at_hand.add(key)
        return body

    def keys(self, prefix: str) -> list[str]:
        """All keys that start with `prefix`, sorted: as listed once, and as this process wrote since."""
        folder = prefix[: prefix.rfind("/") + 1]
        if folder not in self._listed:
            # Not inside the lock: it is a request.
            found = set(self.remote.keys(folder))
            with self._changed:
                self._listed.setdefault(
                    folder, found | {key for key in self._at_hand if key.startswith(folder)}
                )
        with self._changed:
            return sorted(key for key in self._listed[folder] if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Remove, in a while; no error when it is gone already."""
        with self._changed:
            # Its body may still have to be sent before it is deleted.
            self._at_hand.discard(key)
            for listed in self._listed.values():
                listed.discard(key)
            self._enqueue("delete", key)

    def address(self, key: str) -> str:
        """The object's address in the store itself."""
        return self.remote.address(key)

    def scan_options(self) -> dict[str, str]:
        """As the store itself."""
        return self.remote.scan_options()

    def cost(self) -> dict[str, Any]:
        """What the manifest keeps."""
        traffic = self.remote.traffic
        seconds = {name: round(getattr(self.spent, name), 3) for name in Spent.__slots__}
        return {
            "requests": dict(sorted(traffic.requests.items())),
            "sent_bytes": traffic.sent_bytes,
            "received_bytes": traffic.received_bytes,
            "resent": traffic.resent,
            **seconds,
        }

    def wait_for_all(self, tell: Callable[[str], None]) -> None:
        """Return when the store has everything.

        Raises:
            InUse: another process has committed one of the batches.
            StageError: the store stayed away.
        """
        limit_s = self.remote.settings.away_s
        if self._queue and self._away:
            tell(
                f"upload        {len(self._queue)} writes wait for the store, up to {limit_s} s: {self._away}"
            )
        self._drain(limit_s)
        self._check_not_lost()
        if self._queue:
            raise StageError(
                f"{self._away}; {len(self._queue)} writes are kept in {self._outbox.folder}: "
                "nothing is lost, go on with the same --run-id when the store answers"
            )

    def close(self) -> None:
        """Stop sending; what the store does not have stays on this machine."""
        if not self._away:
            self._drain(0.0)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.remote.hurry(True)
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown()
        self.remote.hurry(False)
        if self._queue:
            self._outbox.keep(write for write in self._queue if not write.kept)
        else:
            self._outbox.remove()

    def _drain(self, away_s: float) -> None:
        """Wait while writes wait: as long as the store answers, and `away_s` after it stopped."""
        deadline = time.monotonic() + away_s
        with self._changed:
            while self._queue and not self._lost and self._thread.is_alive():
                if self._away and (time.monotonic() >= deadline or not self._may_return):
                    return
                self._changed.wait(0.2)

    def _write(self, kind: Kind, key: str, body: bytes) -> bool:
        self._check_not_lost()
        began_s = time.monotonic()
        self._outbox.hold(key, body)
        with self._changed:
            self._at_hand.add(key)
            for folder, listed in self._listed.items():
                if key.startswith(folder):
                    listed.add(key)
            write = self._enqueue(kind, key)
        won = self._settled(write) if write.decides else True
        self.spent.waited_s += time.monotonic() - began_s
        if not won:
            self._forget(key)
        return won

    def _forget(self, key: str) -> None:
        self._at_hand.discard(key)
        self._outbox.drop(key)

    def _is_there(self, key: str) -> bool | None:
        """Whether the store has a key, as far as this process knows; None: it was not looked at."""
        if key in self._at_hand:
            return True
        with self._changed:
            listings = [listed for folder, listed in self._listed.items() if key.startswith(folder)]
        return key in listings[0] if listings else None

    def _enqueue(self, kind: Kind, key: str) -> Write:
        self._number += 1
        write = Write(self._number, kind, key)
        self._queue.append(write)
        self._changed.notify_all()
        return write

    def _settled(self, write: Write) -> bool:
        """Wait for the store's answer while it answers at all; then keep everything and go on."""
        patience_s = self.remote.settings.timeout_s
        with self._changed:
            left, deadline = len(self._queue), time.monotonic() + patience_s
            self._waiters += 1
            while not write.done and not self._away and not self._lost and time.monotonic() < deadline:
                self._changed.wait(0.5)
                if len(self._queue) < left:
                    left, deadline = len(self._queue), time.monotonic() + patience_s
            self._waiters -= 1
            if write.done:
                return write.won
            if self._lost and not any(each.kept for each in self._queue):
                self._give_way()
                return False
            self._away = self._away or f"store {self.remote.address('')}: no answer for {patience_s} s"
            self._outbox.keep(each for each in self._queue if not each.kept)
        self._check_not_lost()
        return True

    def _give_way(self) -> None:
        """Another process stored a part of the same attempt: ours is still in its spool, so nothing waits."""
        for write in self._queue:
            self._forget(write.key)
        self._queue.clear()
        self._lost = ""

    def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        while (group := self._next_group()) is not None:
            began_s = time.monotonic()
            try:
                answers = list(self._pool.map(self._timed, group))
            except StoreError as error:
                self._rest(error, pause_s, began_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            pause_s = FIRST_PAUSE_S
            self._took(group, answers)

    def _next_group(self) -> list[Write] | None:
        """Writes that may be sent side by side; None at the end."""
        with self._changed:
            while (not self._queue or self._lost) and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            group: list[Write] = []
            for write in self._queue[: 4 * AT_A_TIME]:
                if write.decides:
                    return group or [write]
                group.append(write)
                if not self._claimed:
                    # Alone: of two processes with the same attempt, the one whose first part wins goes on.
                    return group
            return group

    def _rest(self, error: StoreError, pause_s: float, began_s: float) -> None:
        with self._changed:
            self._away, self._may_return = str(error), isinstance(error, StoreAway)
            self._changed.notify_all()
            if not self._closing:
                self._changed.wait(random.uniform(pause_s / 2, pause_s))
            self.spent.away_s += time.monotonic() - began_s

    def _took(self, group: list[Write], answers: list[bool]) -> None:
        with self._changed:
            self._away, self._claimed = "", not group[-1].decides
            for write, won in zip(group, answers, strict=True):
                write.done, write.won = True, won
                if not won and not (write.decides and self._waiters):
                    self._lost = write.key
                else:
                    self._outbox.sent(write)
                    self._queue.remove(write)
                if write.kind == "delete" and write.key not in self._at_hand:
                    self._outbox.drop(write.key)
            self._changed.notify_all()

    def _timed(self, write: Write) -> bool:
        began_s = time.thread_time()
        try:
            return self._send(write)
        finally:
            took_s = time.thread_time() - began_s
            with self._changed:
                self.spent.cpu_s += took_s
                self.spent.behind_cpu_s += 0 if self._waiters else took_s

    def _send(self, write: Write) -> bool:
        """Whether the store has it now, from us or the same from another."""
        if write.kind == "delete":
            self.remote.delete(write.key)
            return True
        body = self._outbox.held(write.key)
        if write.kind == "put":
            self.remote.put(write.key, body)
            return True
        return self.remote.put_new(write.key, body, write.writer) or (
            not write.decides and self.remote.get(write.key) == body
        )

    def _check_not_lost(self) -> None:
        if self._lost:
            raise InUse(
                f"store {self.remote.address(self._lost)}: another process committed this first; "
                "wait until it has ended and start this run again, or choose another --run-id"
            )
