"""How often the user pressed Ctrl-C: the first asks for an orderly end, the second for an end now.

SIGTERM, with which systemd and Kubernetes end a program, asks for the orderly end, however often it comes.

Event loops answer the signal by themselves and do not tell how often it came. The interpreter also
writes every signal's number into a pipe, whoever handles it; that pipe is counted.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def interrupts() -> Iterator[Callable[[], int]]:
    """Count SIGINT from here on; outside of the main thread, which gets no signals, always 0."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    seen = bytearray()
    try:
        yield lambda: _count(reader, seen)
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _count(reader: int, seen: bytearray) -> int:
    with suppress(BlockingIOError):
        seen += os.read(reader, 4096)
    return seen.count(signal.SIGINT)


@contextmanager
def told_to_end() -> Iterator[Callable[[], bool]]:
    """Make the first SIGTERM a Ctrl-C; yields whether it came. Outside of the main thread it never does.

    Prefect's flows replace this handler by their own, and send the signal again to it when they have ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    told = threading.Event()

    def once(_: int, __: FrameType | None) -> None:
        if not told.is_set():
            told.set()
            signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, once)
    # A shell starts background jobs with the interrupt ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield told.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
