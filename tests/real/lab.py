"""A testbed with controllers that write down the truth, and boot storms on it in which something happens."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from infra.results.open import open_store
from infra.results.read import scan
from infra.testbed import apply
from infra.testbed.state import State
from tasks.records import TABLES
from tests.real import storm as storms
from tests.real import truth
from tests.real.controlling import environment
from tests.real.storm import Spec

READY_S = 120.0
BEGIN_S = 300.0
END_S = 2400.0
POLL_S = 0.05
MIDDLE = 0.25
"""A fault begins when so large a part of a storm's instances exist."""
Fault = Callable[[], None]


class Found(NamedTuple):
    """What a storm left: its records, its batch, what was observed, and how far the truth agrees."""

    vms: list[dict[str, Any]]
    batch: dict[str, Any]
    observer: dict[str, int]
    checked: truth.Checked
    said: str
    process: dict[str, Any]

    @property
    def codes(self) -> list[str]:
        """The reason codes of its verdict."""
        return [reason.partition(":")[0] for reason in self.batch["reasons"]]


class Lab(NamedTuple):
    """A testbed, a folder of ours, and the log of what its controllers did."""

    testbed: State
    folder: Path
    log: Path

    def storm(self, spec: Spec, fault: Fault | None = None, kubeconfig: Path | None = None) -> Found:
        """A storm in a process of its own; `fault` happens in the middle of it."""
        process, result = self.begin(spec, kubeconfig)
        try:
            if fault is not None:
                self.await_middle(spec, process, storms.released_mark(result))
                fault()
            process.wait(END_S)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, (self.folder / f"{spec.run_id}.log").read_text()[-2000:]
        return self.found(spec, json.loads(result.read_text())["storms"][-1])

    def begin(self, spec: Spec, kubeconfig: Path | None = None) -> tuple[subprocess.Popen[bytes], Path]:
        """Start the process of a storm; where it will write its result."""
        asked, result = self.folder / f"{spec.run_id}.spec", self.folder / f"{spec.run_id}.result"
        result.unlink(missing_ok=True)
        storms.released_mark(result).unlink(missing_ok=True)
        storms.write(spec, asked)
        environ = {**environment(self.testbed), "VIRTSCALE_STATE": str(self.folder / "state")}
        if kubeconfig is not None:
            environ["KUBECONFIG"] = str(kubeconfig)
        command = [sys.executable, "-m", "tests.real.storm", str(asked), str(result)]
        with (self.folder / f"{spec.run_id}.log").open("w") as log:
            return subprocess.Popen(command, env=environ, stdout=log, stderr=log), result

    def await_middle(self, spec: Spec, process: subprocess.Popen[bytes], released: Path) -> None:
        """Wait until the storm is in its middle; before its release, what an earlier one left is stopped."""
        until_s = time.monotonic() + BEGIN_S
        while not released.exists() or self.instances(spec) < spec.size * MIDDLE:
            assert process.poll() is None, (self.folder / f"{spec.run_id}.log").read_text()[-2000:]
            assert time.monotonic() < until_s, f"{self.instances(spec)} instances after {BEGIN_S} s"
            time.sleep(POLL_S)

    def instances(self, spec: Spec) -> int:
        """How many instances the run has now."""
        path = f"/apis/kubevirt.io/v1/namespaces/{spec.namespace}/virtualmachineinstances?limit=1"
        _, page = apply.request(self.testbed, "GET", path)
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    def found(self, spec: Spec, result: dict[str, Any]) -> Found:
        """What is stored of a storm, compared with the truth."""
        vms, batches, seconds = (
            self._rows(spec, name, result["repeat"]) for name in ("vm_boots", "batches", "observer")
        )
        counted = ("http_429", "http_5xx", "relists", "resumed")
        sums = {name: sum(row[name] for row in seconds if row["stage"] == "boot") for name in counted}
        checked = truth.check(vms, self.log, result["released_ns"])
        (batch,) = (row for row in batches if row["stage"] == "boot")
        return Found(vms, batch, sums, checked, result["said"], result)

    def _rows(self, spec: Spec, table: str, repeat: int) -> list[dict[str, Any]]:
        frame = scan(open_store(spec.store), spec.run_id, table, TABLES[table])
        return frame.filter((pl.col("repeat") == repeat) & (pl.col("batch") == spec.size)).to_dicts()


@contextmanager
def lab(testbed: State, folder: Path, *options: str) -> Iterator[Lab]:
    """The virtual controllers at work on a testbed for the length of the block, the truth in a log."""
    log, said = folder / "truth", folder / "controllers.log"
    log.touch()
    with said.open("w") as out:
        command = [sys.executable, "-m", "tests.real.truth", str(log), *options]
        process = subprocess.Popen(command, env=environment(testbed), stdout=out, stderr=out)
        try:
            until_s = time.monotonic() + READY_S
            while "controllers ready" not in said.read_text():
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < until_s, said.read_text()
                time.sleep(0.2)
            yield Lab(testbed, folder, log)
            assert process.poll() is None, said.read_text()
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
