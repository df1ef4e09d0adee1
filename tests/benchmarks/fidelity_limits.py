"""HyperConverged's tuning policy: one pair of limits for all four components, which lowers two of them.

Defaults of KubeVirt 1.6 are 5/10 for virt-api and virt-handler, 200/400 for virt-controller and webhooks.
So 100/200 raises the first two and lowers the others; 200/400 lowers none. On the studied cluster a deploy
waits for the restore lock and a boot for attachments, whatever virt-controller may do; with those out of the
way the pair is what both wait for. What virt-controller may do decides there how many VMs wait for an
attachment at once, and so whether a storm overloads the attacher.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from tests.benchmarks.fidelity_rows import Figure, Row, at_least, at_most, between
from tests.benchmarks.fidelity_study import Study

VMS = 800
MANY = 1600
"""As many as stay below the overload of attachments with 100/200, and not with 200/400."""
SLOW, QUICK, AMPLE = ({"qps": qps, "burst": 2 * qps} for qps in (5, 200, 1000))
DEFAULTS: dict[str, Any] = {
    "rates.virt_api": SLOW,
    "rates.virt_controller": QUICK,
    "rates.virt_handler": SLOW,
}
ALONE: dict[str, Any] = {
    **dict.fromkeys(
        [f"rates.{name}" for name in ("cdi", "controller_manager", "provisioner", "attacher")], AMPLE
    ),
    "csi.restore_lock": False,
    "cdi_clone.workers": 30,
    "attach.attach_s": 0.25,
}
"""Everything else that a deploy or a boot waits for on the studied cluster, out of the way."""
SOURCE = "KubeVirt 1.6 and HCO (derived)"
Run = Callable[[str, Mapping[str, Any], Sequence[str]], Future[Study]]


def measured_limits(run: Run) -> dict[str, Future[Study]]:
    """Start a run for each pair of limits; the pair is set by the stage tuning, through HyperConverged."""
    boots = f"boot.batches={VMS}"
    both = (f"deploy.batches={VMS}", boots)
    alone = {**DEFAULTS, **ALONE}
    return {
        "studied, defaults": run("limits-defaults", DEFAULTS, (boots,)),
        "studied, 100/200": run("limits-100", DEFAULTS, (*both, _policy(100))),
        "studied, 200/400": run("limits-200", DEFAULTS, (*both, _policy(200))),
        "many, 100/200": run("many-100", DEFAULTS, (f"boot.batches={MANY}", _policy(100))),
        "many, 200/400": run("many-200", DEFAULTS, (f"boot.batches={MANY}", _policy(200))),
        "alone, defaults": run("alone-defaults", alone, both),
        "alone, 100/200": run("alone-100", alone, (*both, _policy(100))),
        "alone, 200/400": run("alone-200", alone, (*both, _policy(200))),
    }


def _policy(qps: int) -> str:
    return f"tuning.knobs.kubevirt-api-rate={{qps={qps},burst={2 * qps}}}"


def limits_rows(found: Mapping[str, Study]) -> list[Row]:
    """Deploys and boots of 800 VMs with the three settings, as quotients of their times."""

    def deploys(pair: str) -> float | None:
        return found[f"alone, {pair}"].deploy_s(VMS)

    def boots(pair: str, where: str = "alone") -> float | None:
        return found[f"{where}, {pair}"].boot_s(VMS)

    lowered, raised = "100/200 lowers virt-controller", "100/200 raises virt-api and virt-handler"
    wanted = {
        _figure("boot", "defaults", "100/200", raised, "study"): (
            _quotient(boots("defaults", "studied"), boots("100/200", "studied")),
            1.05,
        ),
        _figure("deploy", "100/200", "defaults", lowered): (
            _quotient(deploys("100/200"), deploys("defaults")),
            1.5,
        ),
        _figure("deploy", "100/200", "200/400", lowered): (
            _quotient(deploys("100/200"), deploys("200/400")),
            1.5,
        ),
        _figure("boot", "100/200", "defaults", lowered): (
            _quotient(boots("100/200"), boots("defaults")),
            1.05,
        ),
        _figure("boot", "100/200", "200/400", lowered): (_quotient(boots("100/200"), boots("200/400")), 1.2),
        _figure("boot", "defaults", "200/400", "200/400 raises two, lowers none"): (
            _quotient(boots("defaults"), boots("200/400")),
            1.1,
        ),
    }
    rows = [at_least(figure, measured, least) for figure, (measured, least) in wanted.items()]
    equal = _figure("deploy", "200/400", "defaults", "200/400 lowers none")
    rows.append(between(equal, _quotient(deploys("200/400"), deploys("defaults")), 0.9, 1.1))
    return [*rows, *_hidden_rows(found)]


def _hidden_rows(found: Mapping[str, Study]) -> list[Row]:
    """The studied cluster as it is: why 100/200 and 200/400 differ where they do, and nowhere else."""
    low, high = found["studied, 100/200"], found["studied, 200/400"]
    storms = found["many, 100/200"], found["many, 200/400"]
    what, why = f"boot of {MANY:,} VMs", "attachments: 4/s, so virt-controller is no limit"
    made = [
        at_least(Figure(f"{what}, instances made, {pair}", why, SOURCE, "study"), rate, 8, "/s")
        for pair, rate in zip(
            ("100/200", "200/400"), (each.instances_per_s(MANY) for each in storms), strict=True
        )
    ]
    restores = _figure("deploy", "100/200", "200/400", "hidden by the restore lock", "study")
    attachments = _figure("boot", "100/200", "200/400", "hidden by attachments", "study")
    crowd = Figure(f"{what}, t(100/200)/t(200/400)", "more at once: attacher overloaded", SOURCE, "study")
    return [
        between(restores, _quotient(low.deploy_s(VMS), high.deploy_s(VMS)), 0.97, 1.03),
        between(attachments, _quotient(low.boot_s(VMS), high.boot_s(VMS)), 0.97, 1.05),
        *made,
        at_most(crowd, _quotient(*(each.boot_s(MANY) for each in storms)), 0.9),
    ]


def _figure(stage: str, above: str, below: str, why: str, preset: str = "study, limits alone") -> Figure:
    return Figure(f"{stage} of {VMS} VMs, t({above})/t({below})", why, SOURCE, preset)


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None
