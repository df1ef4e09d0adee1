"""Processor sharing: a capacity divided equally among the jobs in progress."""

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count

from infra.clock import Clock


class SharedCapacity:
    """`capacity` units per second, at most `per_job` of them for one job.

    Exact for equal shares: all jobs advance at the same rate, so one number (the service each
    job has had since the beginning) says which job ends next.
    """

    def __init__(self, clock: Clock, capacity: float, per_job: float) -> None:
        self._clock = clock
        self._capacity = capacity
        self._per_job = per_job
        self._served = 0.0
        self._at_ns = 0
        self._jobs: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()
        self._timer: asyncio.Handle | None = None

    async def use(self, amount: float) -> None:
        """Wait until `amount` units have been served to this job."""
        if amount <= 0:
            return
        self._advance()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = (self._served + amount, next(self._number), done)
        heappush(self._jobs, job)
        self._arm()
        try:
            await done
        except asyncio.CancelledError:
            self._drop(job)
            raise

    def _drop(self, job: tuple[float, int, asyncio.Future[None]]) -> None:
        """A job that was cancelled leaves its share to the others."""
        self._advance()
        if job in self._jobs:
            self._jobs.remove(job)
            heapify(self._jobs)
            self._arm()

    def _rate(self) -> float:
        return min(self._per_job, self._capacity / len(self._jobs)) if self._jobs else 0.0

    def _advance(self) -> None:
        now = self._clock.now_ns()
        self._served += self._rate() * (now - self._at_ns) / 1e9
        self._at_ns = now

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._jobs:
            left = max(0.0, self._jobs[0][0] - self._served) / self._rate()
            self._timer = asyncio.get_running_loop().call_later(left + 1e-6, self._finish)

    def _finish(self) -> None:
        self._advance()
        while self._jobs and self._jobs[0][0] <= self._served + 1e-9:
            future = heappop(self._jobs)[2]
            if not future.done():
                future.set_result(None)
        self._arm()
