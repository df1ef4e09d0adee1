"""`virtscale cluster serve` with an account of its CPU, for `bench_served`; takes the same options.

On SIGUSR1 it says on standard error what it has used so far, as JSON: `api_s`, the CPU seconds of the API
part (TLS, HTTP, what the store does for a request, the lines of watches), and `process_s`, those of
everything, the controllers included.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from infra.served.watching import Outbox

API_MODULES = ("asyncio.selector_events", "asyncio.sslproto", "aiohttp", "infra.served")
API_FILES = ("/aiohttp/", "/infra/served/")


class Account:
    """CPU of the API part; what runs within a part of it is counted once."""

    def __init__(self) -> None:
        self.api_ns = 0
        self._is_counting = False

    def counted(self, call: Callable[..., Any], belongs: Callable[..., bool]) -> Callable[..., Any]:
        """A function whose CPU time is the API part's when `belongs` says so of its arguments."""

        def run(*arguments: Any) -> Any:
            if self._is_counting or not belongs(*arguments):
                return call(*arguments)
            self._is_counting, began_ns = True, time.thread_time_ns()
            try:
                return call(*arguments)
            finally:
                self.api_ns += time.thread_time_ns() - began_ns
                self._is_counting = False

        return run

    def say(self, _number: int, _frame: FrameType | None) -> None:
        """What was used so far."""
        used = {"api_s": self.api_ns / 1e9, "process_s": time.process_time()}
        print(json.dumps(used), file=sys.stderr, flush=True)


def _is_of_api(handle: Any) -> bool:
    """Whether a step of the event loop is a connection's, or of a task that serves a request."""
    owner = getattr(handle._callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        code = getattr(owner.get_coro(), "cr_code", None)
        return code is not None and any(part in code.co_filename for part in API_FILES)
    return type(owner).__module__.startswith(API_MODULES)


def main() -> int:
    """Serve until SIGTERM."""
    from flows.__main__ import exit_code_of

    account = Account()
    signal.signal(signal.SIGUSR1, account.say)
    handle: Any = asyncio.Handle
    handle._run = account.counted(handle._run, _is_of_api)
    outbox: Any = Outbox
    # the store hands a change to the watchers within a step of whoever wrote it
    outbox.take = account.counted(outbox.take, lambda *_: True)
    return exit_code_of(["cluster", "serve", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
