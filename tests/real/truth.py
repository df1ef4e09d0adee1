"""`python -m tests.real.truth LOG`: the virtual controllers at work, writing down when they did what.

A line of the log is one thing that became true of a VM (its instance exists, has a phase, its pod has a node)
with the two moments of the machine's monotonic clock between which the API server did it; the second is null
when no answer came. `check` compares a storm's records with it.
"""

import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from infra.cluster.kinds import POD, VMI, Kind, kind_of
from infra.cluster.port import Object, Ref
from infra.cluster.real import KubernetesCluster
from infra.testbed.state import CONTEXT

T = TypeVar("T")
STEP_OF_PHASE = {"Scheduled": ("vmi_scheduled",), "Running": ("vmi_scheduled", "running")}
STEPS = ("vmi_created", "pod_scheduled", "vmi_scheduled", "running")
LAUNCHER = "virt-launcher-"


class Fact(NamedTuple):
    """A step of a VM became true between two moments, ns; `done_ns` None: nobody knows when at the latest."""

    vm: str
    step: str
    sent_ns: int
    done_ns: int | None


def log_into(out: TextIO) -> None:
    """From now on what a cluster's clients do to instances and pods is written into `out`."""
    cluster: Any = KubernetesCluster
    create, patch, subresource = cluster.create, cluster.patch, cluster.subresource

    async def logged_create(self: Any, obj: Object, *, dry_run: bool = False) -> Object:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        steps = ("vmi_created",) if kind is VMI else ()
        return await _logged(
            out, (obj["metadata"].get("name", ""), steps), lambda: create(self, obj, dry_run=dry_run)
        )

    async def logged_patch(self: Any, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        phase = (merge.get("status") or {}).get("phase", "") if ref.kind is VMI else ""
        what = (ref.name, STEP_OF_PHASE.get(phase, ()))
        return await _logged(out, what, lambda: patch(self, ref, merge, subresource=subresource))

    async def logged_subresource(self: Any, ref: Ref, verb: str, body: Object | None = None) -> None:
        steps = ("pod_scheduled",) if (ref.kind, verb) == (POD, "binding") else ()
        await _logged(out, (_vm_of(ref.kind, ref.name), steps), lambda: subresource(self, ref, verb, body))

    cluster.create, cluster.patch, cluster.subresource = logged_create, logged_patch, logged_subresource


def _vm_of(kind: Kind, name: str) -> str:
    return name.removeprefix(LAUNCHER).rpartition("-")[0] if kind is POD else name


async def _logged(out: TextIO, what: tuple[str, tuple[str, ...]], call: Callable[[], Awaitable[T]]) -> T:
    vm, steps = what
    if not steps:
        return await call()
    sent_ns, done_ns = time.monotonic_ns(), None
    try:
        answer = await call()
        done_ns = time.monotonic_ns()
        return answer
    finally:
        for step in steps:
            out.write(json.dumps([vm, step, sent_ns, done_ns]) + "\n")
        out.flush()


def facts(log: Path) -> list[Fact]:
    """What the log says so far."""
    return [Fact(*json.loads(line)) for line in log.read_text().splitlines()]


def first_facts(log: Iterable[Fact], since_ns: int) -> dict[tuple[str, str], Fact]:
    """When each step of each VM first became true after `since_ns`: between first try and first answer.

    Lines are in the order of answers: a request that was sent first may be answered last.
    """
    found: dict[tuple[str, str], Fact] = {}
    for fact in log:
        if fact.sent_ns >= since_ns:
            known = found.setdefault((fact.vm, fact.step), fact)
            answers = [each.done_ns for each in (known, fact) if each.done_ns is not None]
            sent_ns = min(known.sent_ns, fact.sent_ns)
            found[fact.vm, fact.step] = known._replace(sent_ns=sent_ns, done_ns=min(answers, default=None))
    return found


class Checked(NamedTuple):
    """How many moments were compared, the widest bound among them, and those that contradict the truth."""

    n: int
    widest_s: float
    wrong: list[str]


def check(rows: Iterable[dict[str, Any]], log: Path, released_ns: int) -> Checked:
    """Compare records of `vm_boots` with the log: is each true moment within the record's bound?

    A moment lies between two others in the log, too; it is called wrong when no moment would do.
    """
    truth, n, widest_s, wrong = first_facts(facts(log), released_ns), 0, 0.0, []
    for row in rows:
        for step in STEPS:
            seen_s, error_s = row[f"{step}_s"], row[f"{step}_error_s"]
            fact = truth.get((row["vm"], step))
            if seen_s is None:
                continue
            n += 1
            if fact is None or error_s is None:
                wrong.append(f"{row['vm']} {step}: recorded {seen_s} ± {error_s}, true {fact}")
                continue
            widest_s = max(widest_s, error_s)
            latest_ns = released_ns + seen_s * 1e9
            earliest_ns = latest_ns - error_s * 1e9
            is_later = fact.sent_ns > latest_ns + 1000
            is_earlier = fact.done_ns is not None and fact.done_ns < earliest_ns - 1000
            if is_later or is_earlier:
                true_s = (fact.sent_ns - released_ns) / 1e9
                wrong.append(
                    f"{row['vm']} {step}: recorded {seen_s:.3f} ± {error_s:.3f} s, true {true_s:.3f} s"
                )
    return Checked(n, widest_s, wrong)


if __name__ == "__main__":
    # A test runner may have been started with SIGINT ignored, which a child would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from flows.__main__ import exit_code_of

    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        log_into(file)
        sys.exit(exit_code_of(["cluster", "control", CONTEXT, *sys.argv[2:]]))
