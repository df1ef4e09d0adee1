"""The prober against thousands of SSH end points that come up over a minute: how far off it can be.

`python -m tests.benchmarks.bench_ssh [END_POINTS [SECONDS [JUMP_HOST]]]`, 6,000 over 60 s by default. The
prober has one core for itself, the end points (one process) another.
"""

import asyncio
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.guests.port import Answer, Target
from infra.guests.ssh.adapter import SshGuests
from infra.guests.ssh.settings import SshSettings
from tests.benchmarks.ssh_endpoints import EndPoint, Truth

PORT = 2222
OWN = 16 + os.getpid() % 200
"""Addresses of this process alone: 127.OWN.0.0/16."""
LIMIT_MS = 250.0
MISBEHAVING = {"filtered": 200, "silent": 200, "wrong": 100, "refuses": 100, "disconnects": 50}
"""Of 6,000 end points; fewer end points have as large a share."""
REASONS = {
    "filtered": "no answer at all to TCP",
    "silent": "TCP is open, no banner came",
    "wrong": "wrong banner: 220 mail.example ESMTP",
    "refuses": "the key of this run is refused",
    "disconnects": "disconnected in the handshake",
    "stranger": "another machine answers at its address",
}
STEPS_OF = {
    "good": 3,
    "slow": 3,
    "filtered": 0,
    "silent": 1,
    "wrong": 1,
    "refuses": 2,
    "disconnects": 2,
    "stranger": 2,
}


@dataclass(frozen=True)
class Storm:
    """A finished storm: what the prober answered, what was true, and why some VMs never answered."""

    plan: list[EndPoint]
    answers: dict[tuple[str, str], Answer]
    truths: dict[str, Truth]
    reasons: dict[str, str | None]
    cpu_s: float
    wall_s: float

    def errors_ms(self, step: str) -> list[float]:
        return sorted(
            (a.seen_ns - a.not_yet_ns) / 1e6 for (_, each), a in self.answers.items() if each == step
        )

    def outside(self, step: str, truth: str) -> list[str]:
        """VMs whose error bound does not hold the truth; a port began to listen between two moments."""
        since = "asked" if truth == "listening" else truth
        return [
            vm
            for (vm, each), answer in self.answers.items()
            if each == step and not self._holds(answer, since, truth)
        ]

    def _holds(self, answer: Answer, since: str, until: str) -> bool:
        true: Mapping[str, int] = self.truths[answer.vm]  # type: ignore[assignment]
        return until in true and answer.not_yet_ns <= true[until] and true[since] <= answer.seen_ns

    def steps_missing(self) -> dict[str, int]:
        """Steps that end points should have shown and did not, or the other way round, by kind."""
        seen = Counter(vm for vm, _ in self.answers)
        wrong = [p["kind"] for p in self.plan if seen[p["vm"]] != STEPS_OF[p["kind"]]]
        return dict(Counter(wrong))

    def misnamed(self) -> dict[str, Counter[str]]:
        """Reasons other than the right one, by kind."""
        found: dict[str, Counter[str]] = {}
        for point in self.plan:
            said = self.reasons[point["vm"]]
            if not is_named(point, said):
                found.setdefault(point["kind"], Counter())[(said or "none").partition(": ")[2]] += 1
        return found


def is_named(point: EndPoint, reason: str | None) -> bool:
    """Whether a reason, or that there is none, is the right one."""
    right = REASONS.get(point["kind"])
    return reason is None if right is None else right in (reason or "")


def plan_of(n: int, over_s: float, kinds: dict[str, int], seed: int = 7) -> list[EndPoint]:
    """End points in a random order, evenly over the time; those that drop SYNs do so from the start."""
    order = [kind for kind, count in kinds.items() for _ in range(count)]
    order += ["good"] * (n - len(order))
    random.Random(seed).shuffle(order)
    return [
        {
            "vm": f"vm-{i}",
            "address": f"127.{OWN}.{i // 250}.{1 + i % 250}",
            "kind": kind,
            "at_s": 0.0 if kind == "filtered" else over_s * i / n,
        }
        for i, kind in enumerate(order)
    ]


@contextmanager
def endpoints(plan: list[EndPoint], port: int = PORT) -> Iterator["subprocess.Popen[str]"]:
    """The process of the end points, ready."""
    command = [sys.executable, "-m", "tests.benchmarks.ssh_endpoints"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps({"plan": plan, "port": port}) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def say(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin
    process.stdin.write(line + "\n")
    process.stdin.flush()


def storm(
    plan: list[EndPoint], guests: Callable[[], SshGuests], timeout_s: float, core: list[int] | None = None
) -> Storm:
    """Let the end points come up, and probe them until all have answered that will, or time is over."""
    with endpoints(plan) as process:
        if core:
            os.sched_setaffinity(0, core)
        found = asyncio.run(_probe(plan, guests(), timeout_s, process))
        say(process, "end")
        assert process.stdout
        return Storm(plan, found[0], json.loads(process.stdout.readline()), *found[1:])


def prober(folder: Path, jump: str = "") -> SshGuests:
    """Guests at this port, reached directly or through a jump host."""
    return SshGuests(SshSettings(port=PORT, jump=jump), folder, _no_address)


async def _no_address(vm: str) -> str:
    return ""


async def _probe(
    plan: list[EndPoint], guests: SshGuests, timeout_s: float, process: "subprocess.Popen[str]"
) -> tuple[dict[tuple[str, str], Answer], dict[str, str | None], float, float]:
    answers: dict[tuple[str, str], Answer] = {}
    wanted = sum(STEPS_OF[point["kind"]] for point in plan)
    cpu, began = time.process_time(), time.monotonic()
    guests.arm(point["vm"] for point in plan)
    for point in plan:
        guests.aim(Target(point["vm"], point["address"]))
    say(process, str(time.monotonic_ns() + 500_000_000))

    async def listen() -> None:
        async for batch in guests.answers():
            answers.update({(each.vm, each.step): each for each in batch})

    listening = asyncio.create_task(listen())
    while time.monotonic() - began < timeout_s:
        await asyncio.sleep(0.1)
        if len(answers) >= wanted and all(is_named(point, guests.reason(point["vm"])) for point in plan):
            break
    reasons = {point["vm"]: guests.reason(point["vm"]) for point in plan}
    used = (time.process_time() - cpu, time.monotonic() - began)
    await guests.close()
    await listening
    return answers, reasons, *used


def percentile(values: list[float], q: float) -> float:
    """Nearest rank."""
    return values[max(0, math.ceil(q / 100 * len(values)) - 1)] if values else math.nan


def main() -> int:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    over_s = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    jump = sys.argv[3] if len(sys.argv) > 3 else ""
    kinds = {kind: max(1, round(count * n / 6000)) for kind, count in MISBEHAVING.items()}
    cores = sorted(os.sched_getaffinity(0))
    plan = plan_of(n, over_s, kinds)
    with tempfile.TemporaryDirectory() as folder:
        os.sched_setaffinity(0, cores[1:] or cores)
        found = storm(plan, lambda: prober(Path(folder), jump), over_s + 60, cores[:1])
    print(f"{n} end points over {over_s:g} s, of them {kinds}")
    print(
        f"prober: {found.cpu_s:.1f} CPU-s in {found.wall_s:.1f} s on one core, load {os.getloadavg()[0]:.1f}"
    )
    print(f"peak RSS of the prober: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    worst = 0.0
    for step, truth in (("tcp_open", "listening"), ("ssh_banner", "banner"), ("ssh_ready", "command")):
        errors = found.errors_ms(step)
        p50, p99, top = (percentile(errors, q) for q in (50, 99, 100))
        outside = found.outside(step, truth)
        skip = {p["vm"] for p in plan if p["kind"] == "disconnects"} if step == "ssh_banner" else set()
        lie = len([vm for vm in outside if vm not in skip])
        print(
            f"{step}: n {len(errors)}, error bound p50 {p50:.0f} p99 {p99:.0f} max {top:.0f} ms; "
            f"truth outside: {lie}"
        )
        worst = worst if step == "ssh_ready" else max(worst, p99)
    print(f"steps missing: {found.steps_missing()}; misnamed reasons: {found.misnamed()}")
    return int(worst >= LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
