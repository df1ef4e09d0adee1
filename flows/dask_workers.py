"""Shards on Dask through Prefect's own task runner: a local cluster, or one whose address is given.

Every shard is a Prefect task that is pinned to a Dask worker of its own; while it runs, the run asks that
process what it needs to know (is it ready, what does its clock say) past its task, on Dask's own connections.
Needs the extra `dask`; imported when workers are asked for, and only then.
"""

import asyncio
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask.config
import distributed
from prefect import task
from prefect.client.schemas import State
from prefect_dask.task_runners import DaskTaskRunner

from infra.errors import InvalidRun, StageError, VirtscaleError
from infra.workers import Worker, WorkerGone
from tasks.run import RunRequest
from tasks.shards.share import Found, Share
from tasks.shards.taking import take_share

ANSWER_S = 60.0
"""A worker that does not answer for so long is gone; its share has stopped by itself before (SILENCE_S)."""
START_S = 20.0
LOST = (OSError, KeyError, ValueError, TimeoutError, distributed.CancelledError)
"""What Dask raises, one or the other, when a worker is not there any more."""


# Without a key of its own it would have that of the step which it is a part of.
@task(persist_result=False, result_storage_key="{task_run.id}", retries=0)
def shard(request: dict[str, Any], share: Share) -> Found:
    """One share of a batch, taken in a Dask worker."""
    return take_share(RunRequest.model_validate(request), share)


@dataclass(slots=True)
class DaskWorker:
    """An `infra.workers.Worker`: the process at `address`."""

    client: Any
    pool: ThreadPoolExecutor
    address: str
    request: dict[str, Any]
    future: Any = None

    async def begin(self, share: Share) -> None:
        """Submit the share to this process and no other."""
        named = shard.with_options(task_run_name=f"{share.stage} {share.size} shard {share.number}")
        self.future = await asyncio.to_thread(
            self.client.submit,
            named,
            parameters={"request": self.request, "share": share},
            return_type="state",
            workers=[self.address],
            allow_other_workers=False,
            pure=False,
        )

    async def ask(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function there; WorkerGone."""

        def asked() -> Any:
            return self.client.run(what, *arguments, workers=[self.address])[self.address]

        answer = asyncio.get_running_loop().run_in_executor(self.pool, asked)
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except LOST as error:
            raise WorkerGone(f"Dask worker {self.address} does not answer") from error

    async def found(self) -> Found:
        """What became of the share; its own error, or WorkerGone."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        self.future.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
        await done.wait()
        try:
            state: State[Found] = await asyncio.to_thread(self.future.result)
        except LOST as error:
            raise WorkerGone(f"Dask worker {self.address} is gone") from error
        return await asyncio.to_thread(_result, state)

    async def forget(self) -> None:
        """Drop the task, also one that waits for a process which does not come back."""
        if self.future is not None:
            await asyncio.to_thread(self.future.cancel)


def _result(state: State[Found]) -> Found:
    found = state.result(raise_on_failure=False)
    if isinstance(found, VirtscaleError):
        raise found
    if isinstance(found, BaseException):
        raise StageError(f"a shard failed: {found!r}") from found
    return found


@dataclass(slots=True)
class DaskWorkers:
    """An `infra.workers.Workers`."""

    client: Any
    pool: ThreadPoolExecutor
    request: dict[str, Any]
    shards: int

    async def free(self, n: int) -> list[Worker]:
        """So many Dask workers.

        Raises:
            StageError: there are fewer.
        """
        addresses = sorted((await asyncio.to_thread(self.client.scheduler_info, -1))["workers"])
        if len(addresses) < n:
            raise StageError(f"Dask has {len(addresses)} workers, but {n} shards need one each: use --shards")
        return [DaskWorker(self.client, self.pool, address, self.request) for address in addresses[:n]]


@contextmanager
def dask_workers(request: RunRequest) -> Iterator[DaskWorkers]:
    """The workers that a run asks for; those of a local cluster end with the block.

    Raises:
        InvalidRun: the Dask scheduler at the given address does not answer, or has too few workers.
    """
    with (
        _quietly(),
        _task_runner(request) as runner,
        ThreadPoolExecutor(request.shards, "shards") as pool,
    ):
        try:
            client = runner.client
            client.wait_for_workers(request.shards, timeout=START_S)
        except (OSError, TimeoutError, ValueError) as error:
            where = f"--dask-address {request.dask}" if request.dask else "Dask on this machine"
            raise InvalidRun(f"{where}: {request.shards} workers are needed: {error}") from error
        if not request.dask:
            # Ctrl-C is for the run, which tells its shards
            client.run(os.setpgrp)
        yield DaskWorkers(client, pool, request.model_dump(mode="json"), request.shards)


@contextmanager
def _quietly() -> Iterator[None]:
    """Pages that nobody looks at are not served, and a port for them that is taken is no news."""
    pages: dict[str, list[str]] = {f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")}
    with dask.config.set(pages), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\s*Port \d+ is already in use")
        yield


def _task_runner(request: RunRequest) -> DaskTaskRunner:
    """A local cluster listens on this machine alone, has no dashboard, and ends no worker for its memory."""
    if request.dask:
        return DaskTaskRunner(address=request.dask, client_kwargs={"timeout": START_S})
    return DaskTaskRunner(
        cluster_kwargs={
            "n_workers": request.shards,
            "threads_per_worker": 1,
            "processes": True,
            "host": "127.0.0.1",
            "dashboard_address": None,
            "memory_limit": 0,
        }
    )
