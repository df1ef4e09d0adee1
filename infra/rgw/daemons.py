"""Brings monitor, OSD and gateway up and down, in the order that they need."""

import os
import random
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from infra.errors import StoreError
from infra.ports import is_free
from infra.rgw import configuration, packages
from infra.rgw.configuration import ACCESS_KEY, SECRET_KEY, Gateway
from infra.testbed import pki

MON, OSD, RGW = "mon.a", "osd.0", "client.rgw"
READY_S, TERM_S, POLL_S = 60.0, 20.0, 0.05
# A unix socket's path holds 107 bytes; the longest here is FOLDER/run/client.rgw.asok.
LONGEST_FOLDER = 80
# Below the range from which Linux takes the ports of outgoing connections.
PORTS = range(20_000, 32_000, 10)


def up(gateway: Gateway) -> Gateway:
    """A running gateway in its folder: made if there is none, started if it does not run.

    Raises:
        StoreError: a program is missing, or a daemon did not start (with its last log line).
    """
    packages.require()
    recorded = configuration.read(gateway.folder)
    if recorded is not None:
        _start(recorded)
        return recorded
    if len(str(gateway.folder)) > LONGEST_FOLDER:
        raise StoreError(
            f"rgw {gateway.folder}: longer than {LONGEST_FOLDER} characters; choose another folder"
        )
    for name in ("run", "log", "mon", "osd", "crash"):
        (gateway.folder / name).mkdir(parents=True, exist_ok=True)
    made = replace(gateway, port=gateway.port or _free_port(), fsid=str(uuid.uuid4()))
    if made.tls:
        pki.ensure(made.keys)
    made.conf.write_text("")
    try:
        _make(made)
        _start(made)
    except StoreError:
        down(made.folder, wipe=False)
        raise
    return made


def down(folder: Path, *, wipe: bool) -> None:
    """End every daemon of the gateway in `folder`, then forget its data if `wipe`; fine when none runs."""
    for name, patience_s in ((RGW, TERM_S), (OSD, TERM_S), (MON, TERM_S)):
        end(folder, name, 0.0 if wipe else patience_s)
    if wipe and configuration.read(folder) is not None:
        shutil.rmtree(folder)


def end(folder: Path, name: str, patience_s: float) -> None:
    """End one daemon: TERM, and KILL after `patience_s` (at once when 0)."""
    pid = alive(folder, name)
    if pid is None:
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM if patience_s else signal.SIGKILL)
        deadline = time.monotonic() + patience_s
        while alive(folder, name) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if alive(folder, name):
            os.kill(pid, signal.SIGKILL)
    while alive(folder, name):
        time.sleep(POLL_S)
    (folder / "run" / f"{name}.pid").unlink(missing_ok=True)


def alive(folder: Path, name: str) -> int | None:
    """The pid of a daemon that runs with this very configuration; None when it does not."""
    try:
        pid = int((folder / "run" / f"{name}.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return pid if str(folder / "ceph.conf").encode() in words and state not in "ZX" else None


def start_gateway(gateway: Gateway) -> None:
    """Start radosgw and wait until S3 answers; fine when it does.

    Raises:
        StoreError: it did not answer in time.
    """
    if alive(gateway.folder, RGW) is None:
        _run(gateway, "radosgw", "-n", RGW)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if _answers(gateway):
            return
        time.sleep(POLL_S)
    raise StoreError(f"rgw {gateway.folder}: radosgw does not answer: {_last_line(gateway, RGW)}")


def _make(gateway: Gateway) -> None:
    """An empty cluster: its monitor's map, its OSD, its one S3 user."""
    gateway.write()
    monmap = str(gateway.folder / "monmap")
    # Without an explicit map the monitor takes mon_host for a nameless peer and probes for ever.
    address = f"[v2:127.0.0.1:{gateway.port + 1}]"
    _run(
        gateway, "monmaptool", "--create", "--clobber", "--fsid", gateway.fsid, "--addv", "a", address, monmap
    )
    _run(gateway, "ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
    _run(gateway, "ceph-mon", "-i", "a")
    osd = str(uuid.uuid4())
    _run(gateway, "ceph", "--connect-timeout", "30", "osd", "new", osd)
    _run(gateway, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
    _run(gateway, "ceph-osd", "-i", "0")
    keys = ("--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY)
    # Makes the pools, too, so it waits until the OSD serves.
    _run(
        gateway, "radosgw-admin", "-n", RGW, "user", "create", "--uid", "lab", "--display-name", "lab", *keys
    )


def _start(gateway: Gateway) -> None:
    if alive(gateway.folder, MON) is None:
        _run(gateway, "ceph-mon", "-i", "a")
    if alive(gateway.folder, OSD) is None:
        _run(gateway, "ceph-osd", "-i", "0")
    start_gateway(gateway)


def _run(gateway: Gateway, program: str, *words: str) -> None:
    path = shutil.which(program) or program
    conf = () if program == "monmaptool" else ("-c", str(gateway.conf))
    command = [path, *conf, *words]
    log = gateway.folder / "log" / f"{program}.out"
    # To a file: a daemon that forks would keep a pipe open.
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=READY_S * 2,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StoreError(
                f"rgw {gateway.folder}: {program} {words[0]} did not end: {_tail(log)}"
            ) from error
    if done.returncode:
        raise StoreError(f"rgw {gateway.folder}: {program} {words[0]} failed: {_tail(log)}")


def _answers(gateway: Gateway) -> bool:
    trusting = ssl.create_default_context(cafile=gateway.authority) if gateway.authority else None
    try:
        with urllib.request.urlopen(f"{gateway.endpoint}/", timeout=2, context=trusting) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def _last_line(gateway: Gateway, name: str) -> str:
    return _tail(gateway.folder / "log" / f"{name}.log")


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "its log is empty"


def _free_port() -> int:
    for port in random.Random(os.getpid()).sample(PORTS, len(PORTS)):
        if all(is_free(port + more) for more in range(10)):
            return port
    raise StoreError("rgw: no ten free loopback ports in a row")
