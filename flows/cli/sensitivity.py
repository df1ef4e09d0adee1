"""`virtscale plan --sensitivity`: the table of assumptions, those that matter most first."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from pydantic import BaseModel

from flows.cli.text import table
from flows.sensitivity import (
    NO_EFFECT,
    Case,
    Sensitivity,
    Times,
    assumptions_of,
    can_vary,
    sensitivities,
    small,
)
from infra.cluster.virtual.constants import constants
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.own import constants_named
from infra.errors import ProfileError
from tasks.capacity import Fit
from tasks.profile import Profile
from tasks.report_text import human_duration

RIGHT = range(1, 6)


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `--sensitivity`: VMs of the runs, constants (none: every assumption), processes."""

    size: int
    varied: Sequence[str]
    processes: int
    seed: int


def case_of(profile: Profile, description: Description | None, room: Fit | None, asked: Asked) -> Case:
    """The small run that is varied.

    Raises:
        ProfileError: nothing is there to be varied, or measured, or no room for it.
    """
    if description is None:
        raise ProfileError("--sensitivity: only a virtual cluster has constants to vary")
    if not {"deploy", "boot"}.intersection(profile.stages):
        raise ProfileError("--sensitivity: needs stage deploy or boot, and the profile has neither")
    if room is not None and not room.fits:
        raise ProfileError(f"--size {asked.size}: {room.needed}; {room.found}; choose a smaller --size")
    return Case(description, small(profile, asked.size), asked.seed)


def names_of(description: Description, asked: Asked) -> list[str]:
    """The constants to vary.

    Raises:
        ProfileError: `--constant` names none, or one that cannot be halved.
    """
    try:
        names = [each for name in asked.varied for each in constants_named(name, Description)]
    except KeyError as error:
        raise ProfileError(f"--constant {error.args[0]}") from None
    for name in names:
        if not can_vary(description, name):
            raise ProfileError(f"--constant {name}: no quantity that deploys or storms depend on")
    return names or assumptions_of(description)


def show_sensitivity(case: Case, asked: Asked, as_json: bool) -> None:
    """Run all variants and print the table, or the same as one JSON object."""
    names, processes = names_of(case.description, asked), asked.processes
    base, found = run_all(case, names, processes)
    found = by_effect(found, base)
    if as_json:
        click.echo(json.dumps(as_object(case, base, found)))
        return
    click.echo("\n".join(lines(case, base, found)))


def by_effect(found: Sequence[Sensitivity], base: Times) -> list[Sensitivity]:
    """Those that matter most first."""
    return sorted(found, key=lambda each: (-each.effect(base), each.constant))


def run_all(case: Case, names: Sequence[str], processes: int) -> tuple[Times, list[Sensitivity]]:
    """The times of the case, and every constant's; a bar on a terminal."""
    results = sensitivities(case, names, processes)
    bar = click.progressbar(
        results, len(names) + 1, label="assumptions", file=sys.stderr, hidden=not sys.stderr.isatty()
    )
    base: Times = {}
    found = []
    with bar as steps:
        for each in steps:
            if isinstance(each, Sensitivity):
                found.append(each)
            else:
                base = each
    return base, found


def lines(case: Case, base: Times, found: Sequence[Sensitivity]) -> list[str]:
    """What was varied, the table, and what has no effect at this size."""
    size = next(iter(case.profile.deploy.batches))
    matters = [each for each in found if each.effect(base) > 1 + NO_EFFECT]
    rest = [each.constant for each in found if each not in matters]
    times = ", ".join(f"{stage} {told(time_s)}" for stage, time_s in base.items())
    what = f"{size:,} VMs on {case.description.name}, seed {case.seed}: {times}"
    head = [f"{what}; each assumption halved and doubled"]
    if matters:
        names = [f"{stage} {side}" for stage in base for side in ("halved", "doubled")]
        rows = [[each.constant, shown(each.value), *changes(each, base)] for each in matters]
        head.append(table([["assumption", "value", *names], *rows], RIGHT))
    if rest:
        head.append(f"no effect at {size:,} VMs: {', '.join(rest)}")
    return head


def changes(each: Sensitivity, base: Times) -> list[str]:
    """`-50 %`, `+97 %` for each stage, halved then doubled."""
    return [change(side, stage, base) for stage in base for side in (each.halved, each.doubled)]


def change(side: Times | None, stage: str, base: Times) -> str:
    """One cell: `-` where the constant cannot have that value, the time where there is nothing to compare."""
    if side is None:
        return "-"
    time_s, base_s = side[stage], base[stage]
    if time_s is None or not base_s:
        return told(time_s)
    percent = 100 * (time_s / base_s - 1)
    return "=" if abs(percent) < 100 * NO_EFFECT else f"{percent:+.0f} %"


def told(time_s: float | None) -> str:
    """A time for people."""
    return "beyond the limit" if time_s is None else human_duration(time_s)


def shown(value: Any) -> str:
    """A constant's value for people."""
    return f"{value.qps:g}/{value.burst}" if hasattr(value, "qps") else f"{value:g}"


def as_object(case: Case, base: Times, found: Sequence[Sensitivity]) -> dict[str, Any]:
    """The same for machines: seconds; null is a side that is not possible, a time beyond the limit."""
    what = {name: field.description for name, field in constants(Description)}
    return {
        "cluster": case.description.name,
        "vms": next(iter(case.profile.deploy.batches)),
        "seed": case.seed,
        "base_s": base,
        "constants": [
            {
                **asdict(each),
                "value": each.value.model_dump() if isinstance(each.value, BaseModel) else each.value,
                "effect": effect if math.isfinite(effect := each.effect(base)) else None,
                "description": what[each.constant],
            }
            for each in found
        ],
    }
