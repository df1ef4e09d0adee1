"""What is installed in virtual guests for the latency stage: systemd, our segment runner, the tools.

Units go on while nobody is connected. What they have written by now is made up whenever somebody
looks, from the unit's start and the clock alone: days cost nothing.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.loop import EPOCH, VirtualLoop
from infra.cluster.virtual.machines import Machine, Machines
from infra.cluster.virtual.realtime import Latency
from infra.errors import GuestError
from infra.guests.programs import Invocation, Program, cyclictest, jitterdebugger, l2reflect, oslat, stress_ng
from infra.guests.programs.tool_run import ToolRun, seconds_of
from infra.guests.programs.units import Unit, boot_id, keep, show, start, stopped, unit_named, units_of

NS = 10**9
BOOT_ID, UPTIME = "/proc/sys/kernel/random/boot_id", "/proc/uptime"
RUNNER = "/usr/local/bin/virtscale-segments"
"""Our runner (segments.sh); arguments: FOLDER FIRST LAST SUFFIX COMMAND..., "@" is the segment's path."""
COPIER = "/usr/local/bin/virtscale-copies"
"""Our copies of a long process's file (copies.sh); arguments: FOLDER LAST SECONDS UNIT FILE."""
COPIED_S = 0.5
"""From the signal to the line that says it is copied: as the script waits."""
LATE_S = 0.02
"""How late the script wakes up at most; assumption (a few processes of a shell)."""
SEGMENTED: Mapping[str, Callable[[ToolRun], bytes]] = {
    "jitterdebugger": jitterdebugger.result,
    "cyclictest": cyclictest.result,
    "oslat": oslat.result,
}


class LatencyPrograms:
    """The programs of all guests of one virtual cluster."""

    def __init__(self, machines: Machines, loop: VirtualLoop, model: Latency, draws: Draws) -> None:
        self._machines = machines
        self._loop = loop
        self._model = model
        self._draws = draws
        self.programs: dict[str, Program] = {"systemd-run": self._start, "systemctl": self._control}

    async def _start(self, invocation: Invocation) -> bytes:
        machine = self._machine(invocation)
        return start(machine, invocation.files, invocation.arguments, self._loop.now_ns)

    async def _control(self, invocation: Invocation) -> bytes:
        """`systemctl show|stop UNIT`."""
        machine, files = self._machine(invocation), invocation.files
        verb, *_, name = invocation.arguments
        unit = unit_named(machine, files, name)
        if verb == "show":
            return show(unit, machine)
        if unit is None:
            raise GuestError(f"guest {machine.vm}: Unit {name} not loaded.")
        if verb == "stop":
            unit = stopped(unit, self._loop.now_ns)
            keep(files, unit)
            self._write(machine, files, unit)
        return b""

    def _machine(self, invocation: Invocation) -> Machine:
        machine = self._machines.machine(invocation.vm)
        if machine is None:
            raise GuestError(f"guest {invocation.vm}: it is off")
        return machine

    def catch_up(self, machine: Machine, files: dict[str, bytes]) -> None:
        """Write what the units of a guest have finished by now, and what /proc says."""
        files[BOOT_ID] = f"{boot_id(machine)}\n".encode()
        uptime_s = (self._loop.now_ns - (machine.sshd_ns or 0)) / NS
        files[UPTIME] = f"{uptime_s:.2f} {uptime_s:.2f}\n".encode()
        for unit in units_of(machine, files):
            if unit.argv[0] == RUNNER:
                self._run_segments(machine, files, unit)
            elif unit.argv[0] == COPIER:
                self._copy_segments(machine, files, unit)

    def _run_segments(self, machine: Machine, files: dict[str, bytes], unit: Unit) -> None:
        folder, first, last, suffix, *command = unit.argv[1:]
        end_ns, now_ns = unit.started_ns, unit.end_ns(self._loop.now_ns)
        for segment in range(int(first), int(last) + 1):
            path = f"{folder}/seg-{segment:05d}"
            begin_ns = end_ns + self._gap_ns(machine, path)
            argv = [word.replace("@", path) for word in command]
            run = self._run(machine, unit, path, begin_ns)
            run = replace(run, arguments=tuple(argv[1:]), noisy=self._noisy(machine, files, begin_ns))
            seconds = seconds_of(run.option("-D", "--duration") or "")
            end_ns = begin_ns + round(seconds * NS)
            if end_ns > now_ns:
                return
            if path + suffix not in files:
                body = SEGMENTED[argv[0]](replace(run, seconds=seconds))
                files[path + suffix] = body
                line = _manifest_line(machine, segment, (begin_ns, end_ns), body)
                files[f"{folder}/manifest"] = files.get(f"{folder}/manifest", b"") + line

    def _copy_segments(self, machine: Machine, files: dict[str, bytes], copier: Unit) -> None:
        folder, last, seconds, name, _ = copier.argv[1:]
        unit = unit_named(machine, files, name)
        if unit is None:
            return
        begin_ns, manifest = unit.started_ns, f"{folder}/manifest"
        for segment in range(1, int(last) + 1):
            path = f"{folder}/seg-{segment:05d}.json"
            late_ns = round(LATE_S * self._draws.uniform("latency", f"{machine.vm} late at {path}") * NS)
            end_ns = unit.started_ns + segment * int(seconds) * NS + late_ns
            noted_ns = end_ns + round(COPIED_S * NS)
            if noted_ns > copier.end_ns(self._loop.now_ns) or unit.end_ns(end_ns) < end_ns:
                return
            noted = files.get(manifest, b"")
            if _line_begins(machine, segment) not in noted:
                files[path] = body = self._reflected(machine, files, unit, end_ns)
                files[manifest] = noted + _manifest_line(machine, segment, (begin_ns, end_ns), body)
            begin_ns = end_ns

    def _reflected(self, machine: Machine, files: dict[str, bytes], unit: Unit, at_ns: int) -> bytes:
        """What l2reflect's file holds when it is written at a moment."""
        run = self._run(machine, unit, unit.name, unit.started_ns)
        noisy = self._noisy(machine, files, unit.started_ns)
        return l2reflect.result(
            replace(run, noisy=noisy, seconds=(unit.end_ns(at_ns) - unit.started_ns) / NS)
        )

    def _gap_ns(self, machine: Machine, path: str) -> int:
        model = self._model
        share = self._draws.uniform("latency", f"{machine.vm} pause before {path}")
        return round((model.gap_first_ms + share * (model.gap_last_ms - model.gap_first_ms)) * 1e6)

    def _run(self, machine: Machine, unit: Unit, name: str, begin_ns: int) -> ToolRun:
        return ToolRun(
            vm=machine.vm,
            name=name,
            arguments=unit.argv[1:],
            started=EPOCH + timedelta(microseconds=begin_ns // 1000),
            seconds=(unit.end_ns(self._loop.now_ns) - begin_ns) / NS,
            noisy=False,
            model=self._model,
            draws=self._draws,
        )

    def _noisy(self, machine: Machine, files: dict[str, bytes], at_ns: int) -> bool:
        """Whether stress-ng ran beside the tool at that moment."""
        units = (unit for unit in units_of(machine, files) if unit.argv[0] == "stress-ng")
        return any(unit.started_ns <= at_ns < unit.end_ns(at_ns + 1) for unit in units)

    def _write(self, machine: Machine, files: dict[str, bytes], unit: Unit) -> None:
        """What a process writes at its end."""
        run = self._run(machine, unit, unit.name, unit.started_ns)
        tool = unit.argv[0]
        if tool == "l2reflect":
            files[run.option("-F") or ""] = self._reflected(machine, files, unit, self._loop.now_ns)
        elif tool == "stress-ng":
            files[run.option("--yaml") or ""] = stress_ng.result(run)


def _line_begins(machine: Machine, segment: int) -> bytes:
    return f'{{"segment": {segment}, "boot_id": "{boot_id(machine)}",'.encode()


def _manifest_line(machine: Machine, segment: int, span_ns: tuple[int, int], body: bytes) -> bytes:
    """What the runner notes of a finished segment; seconds are the guest's uptime."""
    booted_ns = machine.sshd_ns or 0
    # /proc/uptime cuts off what is less than 10 ms
    begin_s, end_s = ((ns - booted_ns) // 10**7 / 100 for ns in span_ns)
    line = {
        "segment": segment,
        "boot_id": boot_id(machine),
        "begin_s": begin_s,
        "end_s": end_s,
        "exit": 0,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return (json.dumps(line) + "\n").encode()
