"""A gateway that is stopped, one that answers with errors, and an OSD that is full. For `make prove-rgw`."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from typing import Any

from botocore.exceptions import BotoCoreError

from infra.results.open import open_store
from infra.results.s3_client import connect
from infra.results.uploads import waiting_writes
from infra.rgw import daemons
from infra.rgw.configuration import Gateway
from infra.settings import s3
from tests.benchmarks.prove_kills import RUN_ID
from tests.benchmarks.rgw_runs import (
    BUCKET,
    STAGES,
    Proof,
    Row,
    attempts,
    disturbed,
    gateway_in,
    run_whole,
    say,
    started,
    told,
    undisturbed,
    unequal,
    until_measured,
    words_of,
)
from tests.benchmarks.rgw_served import served_words, serving
from tests.store.fault_proxy import PASS, RESET, Answer, Proxy, proxy_to

BATCHES = (4, 6, 8, 10, 12, 14, 16)
"""Of runs in real time: some minutes."""
OSD_GIB = 4
FULL, MORE_ROOM = "0.85", "0.95"
"""The share of the OSD at which Ceph takes no more: its configuration's, and one that lets it go on."""
FILLER_MIB = 16
AT_ONCE, BETWEEN_S = 0.7, 0.4
"""Up to this part in a hurry, then with pauses: an OSD says only every few seconds how full it is."""
HANGS_S = 8
"""A PUT without an answer for so long: the OSD is full."""


def outage(proof: Proof, away_s: float) -> list[Row]:
    """The gateway is stopped in the middle of a run and started again."""

    def off_and_on() -> None:
        daemons.end(proof.gateway.folder, daemons.RGW, 20.0)
        time.sleep(away_s)
        daemons.start_gateway(proof.gateway)

    what = f"gateway stopped for {away_s:.0f} s in the middle of a run on the served cluster"
    with serving(proof.folder):
        return [disturbed(what, served_words(proof.folder, BATCHES, STAGES), off_and_on)]


def flaky(proof: Proof, bad_s: float) -> list[Row]:
    """Behind a proxy that answers 503 and resets connections for a while."""
    with proxy_to(proof.gateway.endpoint) as proxy, changed(AWS_ENDPOINT_URL=proxy.address):
        what = f"503 and resets for {bad_s:.0f} s in the middle of a run on the served cluster"
        with serving(proof.folder):
            words = served_words(proof.folder, BATCHES, STAGES)
            return [disturbed(what, words, lambda: _break(proxy, bad_s))]


def _break(proxy: Proxy, bad_s: float) -> None:
    draw = random.Random(2)
    proxy.plan = lambda method, path: draw.choice([Answer(503, "SlowDown"), RESET])
    time.sleep(bad_s)
    proxy.plan = lambda method, path: PASS


@contextmanager
def changed(**variables: str) -> Iterator[None]:
    """Environment variables for the length of the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def full(proof: Proof) -> list[Row]:
    """An OSD that fills up in the middle of a run: a PUT hangs there, without an error."""
    truth, _ = undisturbed(proof)
    store, words = f"s3://{BUCKET}/full", words_of(proof.profile)
    patience = changed(VIRTSCALE_S3_TIMEOUT_S="5", VIRTSCALE_S3_AWAY_S="10")
    with gateway_in(proof.folder / "f", OSD_GIB) as gateway, patience:
        filled_mib = fill()
        full_at(gateway, MORE_ROOM)
        _until_it_takes()
        process = started(store, words)
        until_measured(store)
        with _held(process):
            full_at(gateway, FULL)
            _until_it_hangs()
        process.join()
        said = told(store).read_text().strip().splitlines()[-1]
        kept = waiting_writes(open_store(store, writable=False), RUN_ID)
        say(f"exit {process.exitcode}, {kept} writes kept: {said}")
        full_at(gateway, MORE_ROOM)
        _until_it_takes()
        run_whole(store, words)
        found, tried = unequal(truth, store), attempts(store)
    stopped = process.exitcode == 1 and said.startswith("error: ") and "nothing is lost" in said
    outcome = f"DIFFERS in {found}" if found else "equal to an undisturbed run"
    return [
        Row(
            f"OSD of {OSD_GIB} GiB full ({filled_mib:,} MiB in it) in the middle of a `{proof.profile}` run: "
            "a PUT hangs",
            "completes or stops with a clear reason, the spool holds everything, a later resume uploads it",
            f"exit {process.exitcode}, {kept} writes kept on this machine; with room again and resumed: "
            f"{outcome}, attempts {sorted(tried)}",
            stopped and kept > 0 and not found and tried == {1},
        )
    ]


def fill() -> int:
    """Put objects until a PUT hangs; returns how many MiB the store has taken."""
    client, body = _impatient(), os.urandom(FILLER_MIB << 20)
    whole = OSD_GIB * 1024 // FILLER_MIB
    first = round(AT_ONCE * whole)

    def put(number: int) -> None:
        client.put_object(Bucket=BUCKET, Key=f"filler/{number}", Body=body)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(first)))
    for number in range(first, whole):
        time.sleep(BETWEEN_S)
        try:
            put(number)
        except BotoCoreError:
            return number * FILLER_MIB
    raise SystemExit(f"{whole * FILLER_MIB} MiB did not fill an OSD of {OSD_GIB} GiB")


def full_at(gateway: Gateway, share: str) -> None:
    """Say from which share of the OSD on Ceph takes no more."""
    command = ["ceph", "-c", str(gateway.conf), "--connect-timeout", "30", "osd", "set-full-ratio", share]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@contextmanager
def _held(process: ForkServerProcess) -> Iterator[None]:
    """A run that does nothing for the length of the block: on virtual time it ends in seconds."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def _until_it_hangs() -> None:
    """Wait until a PUT is not answered any more: the OSD hears of its new limit a little later."""
    client, deadline = _impatient(), time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            client.put_object(Bucket=BUCKET, Key="filler/probe", Body=b"")
        except BotoCoreError:
            return
    raise SystemExit("an OSD that is full takes PUTs")


def _until_it_takes() -> None:
    """Wait until a PUT is answered again: the OSD hears of its new limit a little later."""
    client, deadline = _impatient(), time.monotonic() + 60
    while True:
        try:
            client.put_object(Bucket=BUCKET, Key="filler/last", Body=b"")
            return
        except BotoCoreError:
            if time.monotonic() > deadline:
                raise


def _impatient() -> Any:
    """A client of the gateway that the environment leads to."""
    return connect(replace(s3(), timeout_s=HANGS_S))
