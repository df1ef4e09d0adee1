"""Background processes told apart by pid and kernel start time, so that a recycled pid is never ours."""

import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TERM_PATIENCE_S = 3.0
POLL_S = 0.02
ENDED_STATES = ("Z", "X")
# Nothing of the shell's: a server of a testbed must not follow its proxy or ETCD_ variables. Fewer garbage
# collections take a fifth off the CPU that the API server needs to take the CRDs in, for 250 MiB.
ENVIRONMENT = {"PATH": os.defpath, "GOGC": "200"}


@dataclass(frozen=True)
class Process:
    """A process we started: its pid and its start time in kernel ticks since boot."""

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Whether this very process still runs; one that has ended but is not yet reaped does not."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[19]) == self.start_ticks and fields[0] not in ENDED_STATES

    def rss_mib(self) -> int:
        """Resident memory, 0 when the process is gone."""
        with suppress(FileNotFoundError, ProcessLookupError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
        return 0


def start(command: Sequence[str | Path], log: Path, record: Path) -> Process:
    """Start `command` in a session of its own, its output to `log`, its identity to `record`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    output = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), output, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(words[0], words, ENVIRONMENT, file_actions=actions, setsid=True)
    fields = _stat(pid)
    process = Process(pid, int(fields[19]) if fields else 0)
    record.write_text(json.dumps({"pid": process.pid, "start_ticks": process.start_ticks}))
    return process


def recorded(record: Path) -> Process | None:
    """The process that `record` names, or None when there is no such record."""
    try:
        document = json.loads(record.read_text())
    except FileNotFoundError:
        return None
    return Process(int(document["pid"]), int(document["start_ticks"]))


def stop(processes: Iterable[Process]) -> None:
    """End all of `processes`: TERM at once, KILL to those that still run after 3 s; returns when all ended.

    An API server does not end by itself for 10 s while it has watchers.
    """
    alive = [process for process in processes if process.is_alive()]
    for number, patience_s in ((signal.SIGTERM, TERM_PATIENCE_S), (signal.SIGKILL, TERM_PATIENCE_S)):
        _signal(alive, number)
        alive = _still_alive_after(alive, patience_s)


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        if process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _still_alive_after(processes: Iterable[Process], patience_s: float) -> list[Process]:
    deadline = time.monotonic() + patience_s
    alive = list(processes)
    while alive and time.monotonic() < deadline:
        time.sleep(POLL_S)
        for process in alive:
            _reap(process.pid)
        alive = [process for process in alive if process.is_alive()]
    return alive


def _reap(pid: int) -> None:
    """Collect the exit status if the process is a child of this very command; others are not ours to reap."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name: [0] is the state, [19] the start time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
