"""Holds a cluster for the length of a block: nobody else of virtscale measures there meanwhile."""

import asyncio
import getpass
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from infra.cluster.lease import WHERE, Claim, Holder, Pace
from infra.errors import (
    ClusterError,
    Forbidden,
    InUse,
    InvalidRun,
    StageError,
    Throttled,
    Unavailable,
    Unknown,
)
from infra.machine import machine_id

if TYPE_CHECKING:
    from infra.cluster.real.adapter import KubernetesCluster

RELEASE_S = 10.0
"""A lease that cannot be released within so long runs out by itself."""
Waits = Callable[[str], None]
"""Told in words whom we wait for, once per holder."""
TRANSIENT = (Throttled, Unavailable, Unknown)


def holder_of(run_id: str, nonce: str) -> Holder:
    """This process at work on a run; the nonce tells equal names in two stores apart, and stays secret.

    Raises:
        StoreError: this machine's state folder cannot be written.
    """
    mark = sha256(nonce.encode()).hexdigest()[:12]
    words = f"run {run_id} of {_user()}@{socket.gethostname()}, pid {os.getpid()}"
    return Holder(f"{run_id}/{mark}", machine_id(), secrets.token_hex(4), words)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Held:
    """The lease of a cluster while this process has it; renewed by a thread of its own."""

    def __init__(self, context: str, claim: Claim, pace: Pace) -> None:
        self._context, self._claim, self._pace = context, claim, pace
        self._ends = threading.Event()
        self._lost: StageError | InUse | None = None
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def check(self) -> None:
        """Nothing while the lease is ours.

        Raises:
            StageError: another run has it.
            InUse: another process has it for the same run.
        """
        if self._lost is not None:
            raise type(self._lost)(str(self._lost))

    def sure(self) -> None:
        """Nothing once the cluster has said that the lease is ours still, so that nobody had it meanwhile.

        A server that is away is waited for as long as a lease lasts.

        Raises:
            StageError, InUse: as `check`; or the server did not say.
        """
        # A thread of its own: the caller's may have a loop that is running.
        with ThreadPoolExecutor(1, "sure of the lease") as beside:
            beside.submit(lambda: asyncio.run(self._asked())).result()
        self.check()

    def start(self) -> None:
        """Renew from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Let go; a server that does not answer is not waited for."""
        self._ends.set()
        self._thread.join(RELEASE_S)

    def _run(self) -> None:
        while True:
            with asyncio.Runner() as runner, suppress(ClusterError, TimeoutError):
                runner.run(self._kept())
            if self._ends.wait(self._pace.look_s):
                return

    async def _kept(self) -> None:
        cluster = await _connected(self._context)
        try:
            while not await asyncio.to_thread(self._ends.wait, self._pace.renew_s):
                with suppress(ClusterError):
                    await self._renewed(cluster)
            await asyncio.wait_for(self._claim.release(cluster), RELEASE_S / 2)
        finally:
            await cluster.close()

    async def _renewed(self, cluster: "KubernetesCluster") -> None:
        try:
            await self._claim.renew(cluster)
        except (StageError, InUse) as error:
            self._lost = error

    async def _asked(self) -> None:
        until_s = time.monotonic() + self._pace.lasts_s
        while True:
            try:
                cluster = await _connected(self._context)
                try:
                    return await self._renewed(cluster)
                finally:
                    await cluster.close()
            except (ClusterError, TimeoutError) as error:
                if time.monotonic() >= until_s:
                    raise StageError(f"whether the cluster is still held for this run: {error}") from error
            await asyncio.sleep(self._pace.look_s)


@contextmanager
def only_run(context: str, holder: Holder, waits: Waits, pace: Pace | None = None) -> Iterator[Held]:
    """Wait until the cluster is free, and hold it for the length of the block.

    A process that is killed holds it until its lease has run out.

    Raises:
        InvalidRun: the cluster does not let us have a lease.
        InUse: another machine is at work on the same run.
        ClusterError: it does not answer.
    """
    pace = pace or Pace()
    claim = Claim(holder, pace)
    with asyncio.Runner() as runner:
        runner.run(_taken(context, claim, waits, pace))
    held = Held(context, claim, pace)
    held.start()
    try:
        yield held
    finally:
        held.stop()


async def _taken(context: str, claim: Claim, waits: Waits, pace: Pace) -> None:
    cluster = await _connected(context)
    told, failures = "", 0
    try:
        while True:
            try:
                other, failures = await claim.tried(cluster), 0
            except Forbidden as error:
                raise InvalidRun(f"{WHERE}: {error}; grant get, create and patch of leases there") from error
            except TRANSIENT:
                failures += 1
                if failures * pace.look_s > pace.lasts_s:
                    raise
                other = told
            if not other and not failures:
                return
            if other != told:
                waits(other)
                told = other
            await asyncio.sleep(pace.look_s)
    finally:
        await cluster.close()


async def _connected(context: str) -> "KubernetesCluster":
    # Imported here: the HTTP client is large, and a virtual cluster does without.
    from infra.cluster.real.adapter import connect

    return await connect(context)
