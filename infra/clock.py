"""The observer's clock: one monotonic source for every duration.

`now_ns` is subtracted, `wall` never is. On virtual time both come from the event loop of
`infra.cluster.virtual.loop`, elsewhere from the operating system.
"""

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What stages, observers and controllers know of time."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds; only differences mean anything."""
        ...

    def wall(self) -> datetime:
        """UTC, to be stored beside durations, never subtracted."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait; 0 or less gives others a turn."""
        ...


class MonotonicClock:
    """The operating system's monotonic clock, for everything but virtual time."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds of this machine."""
        return time.monotonic_ns()

    def wall(self) -> datetime:
        """UTC of this machine."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait on the running event loop."""
        return asyncio.sleep(max(0.0, seconds))
