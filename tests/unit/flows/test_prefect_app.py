"""The Prefect server as we start it."""

import os
import subprocess
import sys
from pathlib import Path

from infra import prefect_server

LOOK = "import gc; from flows.prefect_app import create_app; create_app(); print(gc.get_freeze_count())"


def test_what_the_server_is_made_of_is_not_looked_through_for_garbage_again(tmp_path: Path) -> None:
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, check=True)
    assert int(said.stdout.split()[-1]) > 100_000


def test_another_program_with_the_number_of_a_server_is_not_taken_for_it() -> None:
    assert not prefect_server._is_ours(os.getpid())
    for app in prefect_server._APPS:
        command = [sys.executable, "-c", "print(flush=True); input()", app]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            assert prefect_server._is_ours(program.pid)
            program.communicate(b"\n")
