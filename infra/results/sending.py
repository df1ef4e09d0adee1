"""Sends a run's writes to a store that may go away: a queue in the order of writing, a thread, an outbox.

Several attempts may be written at once (stages side by side, batches on virtual time). Of two processes with
the same attempt, the one whose first part is stored goes on: so of an attempt the first write is sent alone,
the others side by side. Commits are sent in their order, each after everything that was written before it.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import InUse, StageError, StoreAway, StoreError
from infra.results.outbox import Kind, Outbox, Write

if TYPE_CHECKING:
    from infra.results.s3 import S3Store

AT_A_TIME = 8
RELIED_ON = 8
"""Commits that a run on virtual time may be ahead of the store's answers."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


@dataclass(slots=True)
class Spent:
    """Seconds: steps' waiting (the sum), CPU of uploading, CPU of it while no step waited, no answer."""

    waited_s: float = 0.0
    cpu_s: float = 0.0
    behind_cpu_s: float = 0.0
    away_s: float = 0.0


class Sender:
    """The one sender of a run; any thread may write."""

    def __init__(self, remote: "S3Store", outbox: Outbox) -> None:
        self.spent = Spent()
        self.pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="upload")
        self._remote, self._outbox = remote, outbox
        self._queue: list[Write] = []
        self._number = max((write.number for write in outbox.waiting()), default=0)
        self._relied_on: deque[Write] = deque()
        self._claimed: set[str] = set()
        self._beaten: set[str] = set()
        """Attempts of which another process has stored a part: their rows are still in their spools."""
        self._lost = ""
        """What another process has stored although we had gone on: nothing more is sent."""
        self._away, self._may_return = "", True
        self._waiters, self._closing = 0, False
        self._is_started = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="uploads", daemon=True)

    def start(self) -> None:
        """Send from now on; nothing of an earlier process waits any more."""
        self._outbox.start_afresh()
        self._is_started = True
        self._thread.start()

    def enqueue(self, kind: Kind, key: str) -> Write:
        """Have a body of the outbox sent, after what was enqueued before.

        Raises:
            InUse: another process is at work on the run.
        """
        self._check_not_lost()
        with self._changed:
            self._number += 1
            write = Write(self._number, kind, key)
            if write.kind == "put_new" and write.attempt in self._beaten:
                write.done, write.won = True, False
                return write
            self._queue.append(write)
            self._changed.notify_all()
        return write

    def settled(self, write: Write) -> bool:
        """Wait for the store's answer while it answers at all; then keep everything and go on.

        Returns False when another process was first.

        Raises:
            InUse: another process was first with something that this run went on from.
        """
        began_s = time.monotonic()
        with self._changed:
            self._waiters += 1
            write.awaited = True
            away = self._no_answer(write)
            write.awaited = False
            self._waiters -= 1
            self.spent.waited_s += time.monotonic() - began_s
            if write.done:
                return write.won
            if not self._lost:
                self._away = self._away or away
                self._keep()
        self._check_not_lost()
        return True

    def rely_on(self, write: Write) -> bool:
        """Go on while a commit is on its way; wait for an earlier one when too many are.

        Raises:
            InUse: another process was first with something that this run went on from.
        """
        write.relied_on = True
        self._relied_on.append(write)
        while self._relied_on and (self._away or len(self._relied_on) > RELIED_ON):
            self.settled(self._relied_on.popleft())
        self._check_not_lost()
        return True

    def release(self, key: str, path: Path) -> None:
        """Remove the spool `path` as soon as the commit `key` is in the store, or kept on the disk."""
        with self._changed:
            unsafe = next((each for each in self._queue if each.key == key and not each.kept), None)
            if unsafe is not None:
                unsafe.frees = path
                return
        path.unlink(missing_ok=True)

    def _keep(self) -> None:
        waiting = [each for each in self._queue if not each.kept]
        self._outbox.keep(waiting)
        for write in waiting:
            write.free()

    def _no_answer(self, write: Write) -> str:
        """Return when a write is done, or with the reason why it is not waited for any longer."""
        patience_s = self._remote.settings.timeout_s
        left, deadline = len(self._queue), time.monotonic() + patience_s
        while not (write.done or self._away or self._lost) and time.monotonic() < deadline:
            self._changed.wait(0.5)
            if len(self._queue) < left:
                left, deadline = len(self._queue), time.monotonic() + patience_s
        return f"store {self._remote.address('')}: no answer for {patience_s} s"

    def wait_for_all(self, tell: Callable[[str], None]) -> None:
        """Return when the store has everything.

        Raises:
            InUse: another process has committed one of the batches.
            StageError: the store stayed away.
        """
        limit_s = self._remote.settings.away_s
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
        """Stop sending, if it was begun; what the store does not have stays on this machine."""
        if not self._away:
            self._drain(0.0)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._remote.hurry(True)
        if self._thread.is_alive():
            self._thread.join()
        # Also an idle thread that an interrupt kept from being counted: the process would wait for it.
        self.pool.shutdown(cancel_futures=True)
        self._remote.hurry(False)
        if self._queue:
            self._keep()
        elif self._is_started:
            self._outbox.remove()

    def _drain(self, away_s: float) -> None:
        """Wait while writes wait: as long as the store answers, and `away_s` after it stopped."""
        deadline = time.monotonic() + away_s
        with self._changed:
            while self._queue and not self._lost and self._thread.is_alive():
                if self._away and (time.monotonic() >= deadline or not self._may_return):
                    return
                self._changed.wait(0.2)

    def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        while (group := self._next_group()) is not None:
            began_s = time.monotonic()
            try:
                answers = list(self.pool.map(self._timed, group))
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
            return self._side_by_side()

    def _side_by_side(self) -> list[Write]:
        group: list[Write] = []
        claiming: set[str] = set()
        for place, write in enumerate(self._queue[: 4 * AT_A_TIME]):
            if write.decides:
                group += [write] if place == 0 else []
            elif write.attempt not in claiming:
                group.append(write)
                claiming |= {write.attempt} - self._claimed
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
            self._away = ""
            for write, won in zip(group, answers, strict=True):
                write.done, write.won = True, won
                if won or (write.awaited and not write.relied_on):
                    self._claimed.add(write.attempt)
                    self._finished(write)
                elif write.kept or self._is_relied_on(write.attempt):
                    self._lost = write.key
                else:
                    self._give_way(write.attempt)
            self._changed.notify_all()

    def _finished(self, write: Write) -> None:
        """The store has answered; a body goes with its deletion, unless it is written again."""
        self._outbox.sent(write)
        write.free()
        if write in self._queue:
            self._queue.remove(write)
        if write.kind == "delete" and all(each.key != write.key for each in self._queue):
            self._outbox.drop(write.key)

    def _is_relied_on(self, attempt: str) -> bool:
        return any(each.relied_on for each in self._queue if each.attempt == attempt)

    def _give_way(self, attempt: str) -> None:
        """Another process stored a part of the same attempt: ours is still in its spool, so nothing waits."""
        self._beaten.add(attempt)
        for write in self._queue:
            if write.attempt == attempt:
                write.done, write.won = True, False
        self._queue = [write for write in self._queue if write.attempt != attempt]

    def _timed(self, write: Write) -> bool:
        began_s = time.thread_time()
        try:
            return send(self._remote, self._outbox, write)
        finally:
            took_s = time.thread_time() - began_s
            with self._changed:
                self.spent.cpu_s += took_s
                self.spent.behind_cpu_s += 0 if self._waiters else took_s

    def _check_not_lost(self) -> None:
        if self._lost:
            raise InUse(
                f"store {self._remote.address(self._lost)}: another process committed this first; "
                "wait until it has ended and start this run again, or choose another --run-id"
            )


def send(remote: "S3Store", outbox: Outbox, write: Write) -> bool:
    """Whether the store has a write now, from us or the same from another.

    Raises:
        StoreError: the store does not take it.
    """
    if write.kind == "delete":
        remote.delete(write.key)
        return True
    body = outbox.held(write.key)
    if write.kind == "put":
        remote.put(write.key, body)
        return True
    return remote.put_new(write.key, body, write.writer) or (
        not write.decides and remote.get(write.key) == body
    )
