"""The virtual controllers at work on a testbed, and virtscale's command line against it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.testbed.state import CONTEXT, State

READY_S = 120.0
UNHURRIED: dict[str, dict[str, float]] = {
    "quiesce": {"probe_ratio": 50},
    "limits": {"watch_behind_s": 60, "api_slow_s": 60, "slow_storage_ratio": 1000},
    "brakes": {"api_p99_s": 60},
}
"""Of a profile: how busy the machine of a test is must not be a reason for anything."""
# A test runner may have been started with SIGINT ignored, which a child would inherit.
VIRTSCALE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from flows.__main__ import exit_code_of; sys.exit(exit_code_of(sys.argv[1:]))"
)


def environment(testbed: State) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(testbed.kubeconfig)}


@contextmanager
def controlled_by_virtual_controllers(testbed: State, said: Path) -> Iterator[State]:
    """`virtscale cluster control` as a process for the length of the block; `said` is its log."""
    with said.open("w") as log:
        command = [sys.executable, "-c", VIRTSCALE, "cluster", "control", CONTEXT]
        process = subprocess.Popen(command, env=environment(testbed), stdout=log, stderr=log)
        try:
            until = time.monotonic() + READY_S
            while "controllers ready" not in said.read_text():
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < until, said.read_text()
                time.sleep(0.2)
            yield testbed
            assert process.poll() is None, said.read_text()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def unhurried() -> list[str]:
    """The same as options of a command."""
    pairs = ((f"{part}.{key}", value) for part, keys in UNHURRIED.items() for key, value in keys.items())
    return [word for key, value in pairs for word in ("--set", f"{key}={value}")]


def virtscale(
    testbed: State, *arguments: str, script: str = VIRTSCALE, limit_s: float = 500
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(
        command, env=environment(testbed), capture_output=True, text=True, timeout=limit_s, check=False
    )
