"""How often the user pressed Ctrl-C: the first asks for an orderly end, the second for an end now.

Event loops answer the signal by themselves and do not tell how often it came. The interpreter also
writes every signal's number into a pipe, whoever handles it; that pipe is counted.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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
