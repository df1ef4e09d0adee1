"""Stages of a virtual cluster side by side: processes take the steps, this one hands them out and tells.

While a process takes a step, this one does for it what it asks of a store that only one may have open.
A process dies with this one, and does not hear the terminal's Ctrl-C: this one passes it on, so that
each is told once for every time the user pressed it.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from flows.cost import peak_rss_mib
from flows.lanes import Lane, Leg, by_work
from flows.steps import Step
from infra.errors import StageError, VirtscaleError
from infra.results.lending import Ask, Reply, borrowed, lent_address, replied
from infra.results.port import ObjectStore
from tasks.run import RunRequest

END_LIMIT_S = 10.0
"""A process that was told twice to stop and does not is ended."""

StepRunner = Callable[[RunRequest, Step], dict[str, Any]]


class Answer(NamedTuple):
    """What became of a step in its process: a summary, or an error by its class and text."""

    summary: dict[str, Any] | None
    error: type[BaseException] | None
    text: str
    peak_rss_mib: float


class StepProcess:
    """A process that takes steps, one at a time."""

    def __init__(self, runner: StepRunner, store: ObjectStore) -> None:
        self._store = store
        context = multiprocessing.get_context("spawn")
        self._steps, steps = context.Pipe()
        self._life, life = context.Pipe()
        self.peak_rss_mib = self.ended_s = 0.0
        self.cleans = False
        """It takes away what the run left: that is what a first Ctrl-C asks for."""
        self._ready = False
        self._process = context.Process(
            target=serve, args=(runner, lent_address(store), steps, life), daemon=True
        )
        with _deaf():
            self._process.start()
        steps.close()
        life.close()

    def take(self, request: RunRequest, step: Step) -> dict[str, Any]:
        """Have a step taken and wait for it.

        Raises:
            VirtscaleError: the step's own.
            KeyboardInterrupt: the process was interrupted.
        """
        try:
            self._wait_until_ready()
            self.cleans = step.stage == "clean"
            self._steps.send((request, step))
            while isinstance(said := self._steps.recv(), Ask):
                self._steps.send(replied(self._store, said))
            answer: Answer = said
        except (EOFError, OSError) as error:
            raise StageError(f"{step.label}: its process ended; run the same command again") from error
        self.peak_rss_mib, self.ended_s = answer.peak_rss_mib, time.monotonic()
        if answer.error is not None:
            raise answer.error.__new__(answer.error, answer.text)
        return answer.summary or {}

    def _wait_until_ready(self) -> None:
        if not self._ready:
            self._steps.recv()
            self._ready = True

    def interrupt(self) -> None:
        """Pass a Ctrl-C on; a process that has not begun anything just ends."""
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, signal.SIGINT if self._ready else signal.SIGTERM)

    def close(self) -> None:
        """Let the process end."""
        self._steps.close()
        self._process.join(END_LIMIT_S)
        self._process.kill()
        self._life.close()


@contextmanager
def _deaf() -> Iterator[None]:
    """What starts now ignores Ctrl-C until it says otherwise: it has nothing to clean up while it loads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def serve(runner: StepRunner, store: str, steps: Connection, life: Connection) -> None:
    """Take steps until nobody sends any more; the store of that address is asked for, "": there is none."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_die_with, args=(life,), daemon=True).start()
    try:
        steps.send(None)
        with borrowed(store, partial(_exchange, steps)):
            # A reply that comes so late is of a call that was interrupted.
            while True:
                asked = steps.recv()
                if not isinstance(asked, Reply):
                    steps.send(_answer(runner, *asked))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _exchange(steps: Connection, ask: Ask) -> Reply:
    steps.send(ask)
    while True:
        reply: Reply = steps.recv()
        if reply.number == ask.number:
            return reply


def _answer(runner: StepRunner, request: RunRequest, step: Step) -> Answer:
    try:
        return Answer(runner(request, step), None, "", peak_rss_mib())
    except (VirtscaleError, KeyboardInterrupt) as error:
        return Answer(None, type(error), str(error), peak_rss_mib())


def _die_with(life: Connection) -> None:
    """A run that was killed must not go on in its helpers."""
    try:
        life.recv_bytes()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGKILL)


HERE = ("report",)
"""Stages whose step this process takes itself, in a thread."""


class SideBySide:
    """Some processes for the lanes of a run; `at` is the step of the first error."""

    def __init__(self, processes: int, runner: StepRunner, store: ObjectStore) -> None:
        self.at: Step | None = None
        self._stopping = False
        self._runner = runner
        self._processes = [StepProcess(runner, store) for _ in range(processes)]

    @property
    def peak_rss_mib(self) -> float:
        """The sum of the processes' own peaks: no less than what they held together."""
        return sum(process.peak_rss_mib for process in self._processes)

    def walk(self, leg: Leg, take: Callable[[Step, StepRunner], None]) -> None:
        """Take all steps: those of a lane in order, the longest lane first.

        Raises:
            VirtscaleError: the first one of any lane; the others were interrupted.
            KeyboardInterrupt: the user's; twice: the processes were told twice.
        """
        here = [lane for lane in leg if lane[0].stage in HERE]
        there = deque(by_work([lane for lane in leg if lane not in here]))
        self._keep(len(there))
        follows: list[tuple[StepRunner, deque[Lane]]] = [(each.take, there) for each in self._processes]
        follows += [(self._runner, deque([lane])) for lane in here]
        with ThreadPoolExecutor(len(follows)) as pool:
            futures = [
                pool.submit(copy_context().run, self._follow, where, lanes, take) for where, lanes in follows
            ]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            except KeyboardInterrupt:
                self._stop(futures)
                raise
            if any(future.done() and future.exception() for future in futures):
                self._stop(futures)
        raise_first([error for future in futures if (error := future.exception())])

    def _keep(self, processes: int) -> None:
        """Let those end that have nothing to do any more: the last one has what was newest at hand."""
        for process in self._by_newest()[processes:]:
            self._processes.remove(process)
            process.close()

    def _by_newest(self) -> list[StepProcess]:
        return sorted(self._processes, key=lambda process: process.ended_s, reverse=True)

    def _follow(
        self, where: StepRunner, lanes: deque[Lane], take: Callable[[Step, StepRunner], None]
    ) -> None:
        while lanes:
            for step in lanes.popleft():
                if self._stopping:
                    return
                try:
                    take(step, where)
                except (VirtscaleError, KeyboardInterrupt):
                    self.at = self.at or step
                    raise

    def _stop(self, futures: list[Future[None]]) -> None:
        """Interrupt every process that measures and wait; a second Ctrl-C is passed on to all."""
        self._stopping = True
        for told in range(2):
            for process in self._processes:
                if told or not process.cleans:
                    process.interrupt()
            try:
                wait(futures)
            except KeyboardInterrupt:
                continue
            return

    def close(self) -> None:
        """Let the processes end."""
        for process in self._processes:
            process.close()


@contextmanager
def side_by_side(processes: int, runner: StepRunner, store: ObjectStore) -> Iterator[SideBySide | None]:
    """Processes for a run, started at once: they load while the run is prepared. None for 0 processes."""
    beside = SideBySide(processes, runner, store) if processes else None
    try:
        yield beside
    finally:
        if beside is not None:
            beside.close()


def raise_first(errors: list[BaseException]) -> None:
    """Raise what went wrong; that others were interrupted because of it says nothing."""
    for error in sorted(errors, key=lambda error: isinstance(error, KeyboardInterrupt)):
        raise error
