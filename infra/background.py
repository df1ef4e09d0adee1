"""Programs that outlive the command that starts them: one record and one log each, in the state folder."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from infra.errors import VirtscaleError


class Program(NamedTuple):
    """A program in the background: `marks` are in its command line, so a reused pid is told apart."""

    folder: Path
    name: str
    marks: tuple[str, ...]

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.folder / f"{self.name}.log"

    @property
    def record(self) -> Path:
        """Its process id."""
        return self.folder / f"{self.name}.json"


def running(program: Program) -> int | None:
    """The process id of the program; None when it does not run."""
    try:
        pid = int(json.loads(program.record.read_text())["pid"])
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if all(mark.encode() in command for mark in program.marks) else None


def start(program: Program, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> int:
    """Start the program in `folder`, or find it running; returns its process id."""
    if found := running(program):
        return found
    program.folder.mkdir(parents=True, exist_ok=True)
    # A shell starts background jobs with the interrupt ignored, and a worker that ignores it never stops.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with program.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    finally:
        signal.signal(signal.SIGINT, before)
    program.record.write_text(json.dumps({"pid": process.pid}))
    # For a moment a new process still has the command line of this one.
    while running(program) is None and process.poll() is None:
        time.sleep(0.01)
    # It outlives this command, so nobody here waits for its end.
    process.returncode = 0
    return process.pid


def stop(program: Program, patience_s: float = 15.0) -> bool:
    """End the program: TERM, and KILL after a while; False when it did not run."""
    pid = running(program)
    if pid is None:
        program.record.unlink(missing_ok=True)
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        while _is_alive(pid, program):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.1)
    program.record.unlink(missing_ok=True)
    return True


def last_line(program: Program) -> str:
    """What the program said last."""
    try:
        lines = program.log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def require(program: Program) -> None:
    """Check that the program still runs.

    Raises:
        VirtscaleError: it has ended; with its last line.
    """
    if running(program) is None:
        raise VirtscaleError(f"{program.name} ended: {last_line(program) or 'no word'} (log {program.log})")


def _is_alive(pid: int, program: Program) -> bool:
    with suppress(ChildProcessError):
        # One that this very process started has to be reaped, or it stays as a zombie.
        os.waitpid(pid, os.WNOHANG)
    return running(program) == pid
