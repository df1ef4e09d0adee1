"""What slows an API down: client token buckets and a server with a bounded number of workers.

Both are analytic: a reservation returns when it will be served, so a call costs one timer
however long it queues.
"""

from heapq import heapreplace

SECOND_NS = 10**9


class TokenBucket:
    """A client-side rate limiter (client-go's): `qps` tokens per second, at most `burst` saved.

    `waits` adds up how long calls are held back (ns), by the second of the clock in which each began to wait.
    """

    def __init__(self, qps: float, burst: int, waits: dict[int, int] | None = None) -> None:
        self._interval_ns = round(1e9 / qps) if qps > 0 else 0
        self._credit_ns = self._interval_ns * max(0, burst - 1)
        self._next_ns = -(10**18)
        self.waits: dict[int, int] = {} if waits is None else waits

    def reload(self, qps: float, burst: int) -> None:
        """Another limit from now on, its bucket full."""
        self._interval_ns = round(1e9 / qps) if qps > 0 else 0
        self._credit_ns = self._interval_ns * max(0, burst - 1)
        self._next_ns = -(10**18)

    def reserve(self, now_ns: int) -> int:
        """Take a token; returns the moment at which the call may leave."""
        if not self._interval_ns:
            return now_ns
        earliest = now_ns - self._credit_ns
        if earliest < self._next_ns:
            earliest = self._next_ns
        self._next_ns = earliest + self._interval_ns
        if earliest <= now_ns:
            return now_ns
        second = now_ns // SECOND_NS
        self.waits[second] = self.waits.get(second, 0) + earliest - now_ns
        return earliest


class Servers:
    """`count` equal workers with one first-come first-served queue."""

    def __init__(self, count: int) -> None:
        self._free: list[int] = [-(10**18)] * count

    def reserve(self, now_ns: int, service_ns: int) -> int:
        """Queue for a worker; returns the moment at which the work is done."""
        free = self._free[0]
        done = (now_ns if free < now_ns else free) + service_ns
        heapreplace(self._free, done)
        return done
