"""What `make prove-api` does, row by row: a row says what was done, what came out, and why it is no proof."""

import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from infra.testbed import apply
from infra.testbed.state import CONTEXT
from tests.real.breaking import hang_etcd
from tests.real.controlling import unhurried, virtscale
from tests.real.faults import CALM, FAULTS, problems
from tests.real.lab import Found, Lab
from tests.real.manifests import instance, virtual_machine
from tests.real.storm import Spec
from tests.real.strangers import NEIGHBOURS, STRANGERS, changed_strangers

STAGES = "preflight,golden-image,tuning,deploy,boot,report,clean"
BRAKE_S = 5.0
"""Within so long after the harm nothing more may leave."""
RUN_LIMIT_S = 7200.0
FLAT = 1.1
"""Memory of the last storms against that of the first, the very first two left out."""


class Row(NamedTuple):
    """One row of the page; `wrong` empty: it holds."""

    name: str
    does: str
    came_out: str
    verdict: str
    wrong: list[str]
    wall_s: float


class Plan(NamedTuple):
    """How large everything is."""

    vms: int
    storms: int
    large: int


Make = Callable[[Lab, Spec, Plan], Row]


def _row(started_s: float, what: tuple[str, str], out: tuple[str, str], wrong: dict[str, bool]) -> Row:
    """`what` is name and deed, `out` result and verdict; `wrong` is what must not be, and whether it is."""
    found = [text for text, is_so in wrong.items() if is_so]
    return Row(*what, *out, found, time.monotonic() - started_s)


def fault_row(name: str) -> Make:
    """A storm in which one thing happens."""
    fault = FAULTS[name]

    def make(lab: Lab, spec: Spec, _: Plan) -> Row:
        started_s = time.monotonic()
        found = fault.storm(lab, replace(spec, changes=CALM))
        wrong = problems(fault, found, spec.size)
        return Row(name, fault.does, told(found), said(found), wrong, time.monotonic() - started_s)

    return make


def told(found: Found) -> str:
    """Records, what was observed, and how they agree with the truth."""
    checked, observed = found.checked, found.observer
    counted = ", ".join(f"{what} {count}" for what, count in observed.items() if count)
    states = ", ".join(
        f"{found.batch[f'n_{state}']} {state}" for state in ("ok", "timeout", "failed", "lost")
    )
    right = checked.n - len(checked.wrong)
    bounds = f"{right} of {checked.n} moments within their bound (widest {checked.widest_s:.1f} s)"
    return "; ".join(part for part in (f"{len(found.vms)} records: {states}", bounds, counted) if part)


def said(found: Found) -> str:
    """The verdict with its reasons."""
    return f"{found.batch['verdict']}: {'; '.join(found.batch['reasons']) or 'no reason'}"


def _paced(spec: Spec, **brakes: Any) -> Spec:
    """Starts spread over 40 s, so that there is something to hold back."""
    return replace(spec, changes={"brakes": brakes, "boot": {"rate_per_s": spec.size / 40}})


def _braked(lab: Lab, spec: Spec, what: tuple[str, str], harm: Callable[[], None]) -> Row:
    name, does = what
    started_s, harmed_ns = time.monotonic(), []

    def harmed() -> None:
        harm()
        harmed_ns.append(time.monotonic_ns())

    found = lab.storm(spec, harmed)
    left = [row["requested_s"] for row in found.vms if row["requested_s"] is not None]
    late_s = found.process["released_ns"] / 1e9 + max(left) - harmed_ns[0] / 1e9
    held = len(found.vms) - len(left)
    wrong = {
        "nothing was held back": held == 0,
        f"a request left {late_s:.1f} s after the harm": late_s > BRAKE_S,
        f"of {len(left)} begun {found.batch['n_ok']} ended well": found.batch["n_ok"] != len(left),
        f"not named: {found.codes}": "brake" not in found.codes,
        f"the run went on: {found.said}": not found.said.startswith("the brake was pulled"),
    }
    came_out = f"{held} held back, the last request left {late_s:+.1f} s after it; {told(found)}"
    return _row(started_s, (name, does), (came_out, said(found)), wrong)


def node_brake(lab: Lab, spec: Spec, _: Plan) -> Row:
    """A node stops being Ready."""
    try:
        what = ("brake-node", "a node stops being Ready while starts go on")
        return _braked(lab, _paced(spec), what, lambda: _ready(lab, "Unknown"))
    finally:
        _ready(lab, "True")


def stranger_brake(lab: Lab, spec: Spec, _: Plan) -> Row:
    """A VM of somebody else fails."""
    vm = instance("well", NEIGHBOURS, "Running")
    apply.apply(lab.testbed, [vm])
    ill = {**vm, "status": {"phase": "Failed"}}
    try:
        what = ("brake-stranger", "a VM of somebody else begins to fail")
        return _braked(lab, _paced(spec), what, lambda: apply.apply(lab.testbed, [ill]))
    finally:
        apply.delete(lab.testbed, vm)


def slow_brake(lab: Lab, spec: Spec, _: Plan) -> Row:
    """The API keeps its answers."""
    what = ("brake-slow-api", "the API's p99 passes 2 s: etcd frozen for 8 s")
    return _braked(lab, _paced(spec, api_p99_s=2.0), what, lambda: hang_etcd(lab.testbed, 8.0))


def _ready(lab: Lab, status: str) -> None:
    condition = {"type": "Ready", "status": status, "reason": "Proof", "message": ""}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-000"}}
    apply.apply_status(lab.testbed, {**node, "status": {"conditions": [condition]}})


def deleted_vms(lab: Lab, spec: Spec, _: Plan) -> Row:
    """A user deletes some of our VMs in the middle of a storm."""
    started_s, victims = time.monotonic(), [f"{spec.run_id}-b-{i:04d}" for i in range(0, spec.size, 10)]

    def delete() -> None:
        for victim in victims:
            apply.delete(lab.testbed, virtual_machine(victim, spec.namespace))

    found = lab.storm(replace(spec, changes=CALM), delete)
    by_state = {row["vm"]: (row["state"], row["detail"]) for row in found.vms}
    lost = [vm for vm, (state, _) in by_state.items() if state == "lost"]
    wrong = {
        f"{len(by_state)} records": len(by_state) != spec.size,
        "nothing was lost": not lost,
        f"lost without having been deleted: {sorted(set(lost) - set(victims))}": not set(lost)
        <= set(victims),
        "others are not ok": found.batch["n_ok"] + len(lost) != spec.size,
        "without the reason": any("deleted by somebody else" not in (by_state[vm][1] or "") for vm in lost),
        f"{len(found.checked.wrong)} moments beyond their bound": bool(found.checked.wrong),
    }
    came_out = f"{len(victims)} deleted, {len(lost)} of them before they ran; {told(found)}"
    does = "somebody deletes every tenth of our VMs in the middle of a storm"
    return _row(started_s, ("vms-deleted", does), (came_out, said(found)), wrong)


POD_SECURITY = {"pod-security.kubernetes.io/enforce": "restricted"}
FEW = 10
DENIED_S = 30.0


def pod_security(lab: Lab, spec: Spec, _: Plan) -> Row:
    """The namespace takes only pods that are restricted."""
    space: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.namespace}}
    strict = {**space, "metadata": {**space["metadata"], "labels": POD_SECURITY}}
    what = ("pod-security", "the namespace takes only pods of PodSecurity's level restricted")
    try:
        apply.apply(lab.testbed, [strict])
        return _denied(lab, spec, what, 'violates PodSecurity "restricted:latest"')
    finally:
        apply.apply(lab.testbed, [space])


def limit_range(lab: Lab, spec: Spec, _: Plan) -> Row:
    """The namespace takes only small pods."""
    rule = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "small", "namespace": spec.namespace},
        "spec": {"limits": [{"type": "Pod", "max": {"memory": "1Gi"}}]},
    }
    what = ("limit-range", "a LimitRange of the namespace takes only pods of up to 1 GiB")
    try:
        apply.apply(lab.testbed, [rule])
        return _denied(lab, spec, what, "maximum memory usage per Pod is 1Gi")
    finally:
        apply.delete(lab.testbed, rule)


def _denied(lab: Lab, spec: Spec, what: tuple[str, str], words: str) -> Row:
    """A small storm, each VM of which has to say why it was not to be."""
    started_s = time.monotonic()
    few = replace(spec, size=FEW, changes={**CALM, "boot": {"limit_s": DENIED_S}})
    found = lab.storm(few)
    silent = [row["vm"] for row in found.vms if words not in (row["detail"] or "")]
    wrong = {
        f"{len(found.vms)} records": len(found.vms) != FEW,
        f"{found.batch['n_timeout']} timeouts": found.batch["n_timeout"] != FEW,
        f"without the server's words: {silent[:3]}": bool(silent),
    }
    return _row(started_s, what, (f"{told(found)}; each: {words}", said(found)), wrong)


def strangers_untouched(lab: Lab, _: Spec, __: Plan) -> Row:
    """After everything above."""
    started_s = time.monotonic()
    changed = changed_strangers(lab)
    came_out = f"{STRANGERS - len(changed)} of {STRANGERS} are as they were made (UID and spec)"
    does = f"{STRANGERS:,} VMs of somebody else in the namespace beside ours, through all the rows above"
    return Row("strangers", does, came_out, "", changed[:3], time.monotonic() - started_s)


def memory(lab: Lab, spec: Spec, plan: Plan) -> Row:
    """Many storms in one process."""
    started_s = time.monotonic()
    process, result = lab.begin(replace(spec, storms=plan.storms, changes=CALM))
    code = process.wait()
    storms = json.loads(result.read_text())["storms"] if result.exists() else []
    rss = [storm["rss_mib"] for storm in storms]
    part = max(1, (len(rss) - 2) // 4)
    first, last = statistics.median(rss[2 : 2 + part] or [0]), statistics.median(rss[-part:] or [0])
    files, tasks = ([storm[what] for storm in storms] for what in ("files", "tasks"))
    wrong = {
        f"exit code {code} after {len(storms)} storms": code != 0 or len(storms) != plan.storms,
        f"{first:.0f} MiB became {last:.0f}": last > first * FLAT,
        f"file descriptors {files}": bool(files) and files[-1] > max(files[:3]),
        f"tasks {tasks}": any(tasks),
        "a storm was braked or stopped": any(storm["said"] for storm in storms),
    }
    came_out = (
        f"{first:.0f} MiB after the first storms, {last:.0f} after the last; file descriptors {files[:1]} "
        f"to {files[-1:]}, tasks {tasks[-1:]}"
    )
    does = f"{plan.storms} storms of {spec.size} VMs in one process"
    return _row(started_s, ("memory", does), (came_out, ""), wrong)


def whole_run(name: str, does: str, options: Callable[[Plan], list[str]]) -> Make:
    """A run by the command line, from preflight to the report."""

    def make(lab: Lab, _: Spec, plan: Plan) -> Row:
        started_s, store = time.monotonic(), lab.folder / name
        places = ["--set", f"namespace={name}-vms", "--set", f"golden_namespace={name}-golden"]
        where = ["--cluster", CONTEXT, "--store", str(store), "--run-id", name, "--json"]
        how = ["--no-prefect", "--stages", STAGES, *options(plan), *unhurried()]
        command = ["run", *how, *places, *where]
        answer = virtscale(lab.testbed, *command, limit_s=RUN_LIMIT_S)
        outcome: dict[str, Any] = {}
        with suppress(ValueError, IndexError):
            outcome = json.loads(answer.stdout.strip().splitlines()[-1])
        page = store / "reports" / name / "report.html"
        report = page.read_text(encoding="utf-8") if page.exists() else ""
        wrong = {
            f"exit code {answer.returncode}: {answer.stderr[-300:]}": answer.returncode not in (0, 3),
            "no report that says testbed": "TESTBED" not in report.upper(),
            "it is invalid": outcome.get("verdict") == "invalid",
        }
        reasons = "; ".join(outcome.get("reasons") or []) or "no reason"
        came_out = f"report of {len(report) / 1e6:.1f} MB, {outcome.get('peak_rss_mib', 0):.0f} MiB"
        return _row(started_s, (name, does), (came_out, f"{outcome.get('verdict')}: {reasons}"), wrong)

    return make


def _small(_: Plan) -> list[str]:
    return ["--profile", "small"]


def _large(plan: Plan) -> list[str]:
    sizes = ["--set", f"deploy.batches={plan.large}", "--set", f"boot.batches={plan.large}"]
    return ["--profile", "small", *sizes]


ROWS: dict[str, Make] = {
    **{name: fault_row(name) for name in FAULTS},
    "brake-node": node_brake,
    "brake-stranger": stranger_brake,
    "brake-slow-api": slow_brake,
    "vms-deleted": deleted_vms,
    "pod-security": pod_security,
    "limit-range": limit_range,
    "strangers": strangers_untouched,
    "small": whole_run("small", "profile `small`, from preflight to report and clean", _small),
    "large": whole_run(
        "large", "a deploy and a boot of 2,000 VMs, from preflight to report and clean", _large
    ),
    "memory": memory,
}
