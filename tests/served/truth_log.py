"""`python -m tests.served.truth_log LOG ...`: `virtscale cluster serve`, writing down when what became true.

A line of the log is one thing that holds of a VM from a moment of the machine's monotonic clock on. The first
line is that clock beside the wall clock, in which batches say when they were released.
"""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from infra.cluster.kinds import DATA_VOLUME, POD, VMI
from infra.cluster.virtual.hub import Hub
from infra.manifests import ROOT_DISK

STEPS = ("datavolume_succeeded", "vmi_created", "pod_scheduled", "vmi_scheduled", "running")
TOLERANCE_S = 0.0005
"""A release is stored in wall time, in whole microseconds, which the machine may slew meanwhile."""
Moments = dict[tuple[str, str], int]


def log_into(out: TextIO) -> None:
    """From now on what the store publishes of VMs is written into `out`."""
    hub: Any = Hub
    publish = hub.publish
    out.write(json.dumps(["wall", time.time_ns(), time.monotonic_ns()]) + "\n")

    def logged(self: Any, change: Any) -> None:
        ns = time.monotonic_ns()
        _, event, _ = change
        for vm, step in _facts(self.kind, event.object) if event.type != "DELETED" else ():
            out.write(json.dumps([vm, step, ns]) + "\n")
        out.flush()
        publish(self, change)

    hub.publish = logged


def _facts(kind: Any, obj: Any) -> Iterable[tuple[str, str]]:
    """What holds of a VM as an object of its is now."""
    name, phase = obj["metadata"]["name"], (obj.get("status") or {}).get("phase")
    if kind is DATA_VOLUME and phase == "Succeeded":
        yield name.removesuffix(f"-{ROOT_DISK}"), "datavolume_succeeded"
    elif kind is POD and obj["spec"].get("nodeName"):
        yield obj["metadata"].get("ownerReferences", [{"name": ""}])[0]["name"], "pod_scheduled"
    elif kind is VMI:
        yield name, "vmi_created"
        if phase in ("Scheduled", "Running"):
            yield name, "vmi_scheduled"
        if phase == "Running":
            yield name, "running"


class Truth:
    """What a log says: the first moment of each step of each VM, in seconds of wall time."""

    def __init__(self, log: Path) -> None:
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (_, wall_ns, mono_ns), *facts = lines
        self._moments: Moments = {}
        for vm, step, ns in facts:
            self._moments.setdefault((vm, step), wall_ns + ns - mono_ns)

    def wrong(self, rows: Iterable[dict[str, Any]], released_s: float) -> list[str]:
        """Steps of records whose true moment is outside the error bound, or that have none."""
        found = []
        for row in rows:
            for step in STEPS:
                seen_s, error_s = row.get(f"{step}_s"), row.get(f"{step}_error_s")
                if seen_s is None:
                    continue
                true_s = self._moments[row["vm"], step] / 1e9 - released_s
                early_s = None if error_s is None else true_s - (seen_s - error_s)
                if early_s is None or early_s < -TOLERANCE_S or true_s > seen_s + TOLERANCE_S:
                    found.append(f"{row['vm']} {step}: {seen_s} ± {error_s} s, true {true_s} s")
        return found


def main(log: str, *options: str) -> int:
    """Serve until SIGTERM."""
    from flows.__main__ import exit_code_of

    with Path(log).open("w", encoding="utf-8") as out:
        log_into(out)
        return exit_code_of(["cluster", "serve", *options])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
