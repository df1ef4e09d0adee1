"""PURE. The section of the report about tuning: which settings the numbers stand on."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from tasks.knobs import catalogue
from tasks.report.section import Section
from tasks.report.tables import table

QUESTION = "Which settings was the cluster measured with?"
_METHOD = (
    "In force: read where the setting acts (the kubelet, the KubeVirt resource, the provisioner's "
    "arguments), not where it was asked for. What was accepted need not work yet.",
    "Statuses: as-desired, applied (set and verified), differs, left and not-verified (NOT in force), "
    "not-applicable (this cluster lacks it), by-hand (no safe way through the API), not-asked, trap (a "
    "setting without effect).",
)
_TAKEN_BACK = ("reverted", "not-reverted")


def tuning_section(frames: Mapping[str, pl.DataFrame]) -> Section | None:
    """The settings of the run; None when its tuning stage was not run."""
    knobs = frames["knobs"]
    rows = knobs.filter(~pl.col("status").is_in(_TAKEN_BACK))
    if rows.is_empty():
        return None
    shown = rows.select("knob", "status", "before", "desired", "effective", "object", "field", "note")
    why = pl.DataFrame([_why(name) for name in rows.get_column("knob").to_list() if name in catalogue()])
    tables = [
        table("settings", shown.filter(pl.col("status") != "trap"), "knobs"),
        table("why each setting matters", why, "knobs"),
    ]
    for name, statuses in (("traps", ("trap",)), ("taken back", _TAKEN_BACK)):
        found = knobs.filter(pl.col("status").is_in(statuses))
        if not found.is_empty():
            tables.append(table(name, found.select("knob", "status", "object", "effective", "note"), "knobs"))
    return Section("tuning", QUESTION, tuning_answer(knobs), _METHOD, (), tables)


def _why(name: str) -> dict[str, Any]:
    knob = catalogue()[name]
    return {
        "knob": name,
        "why": knob.why,
        "default": knob.default,
        "source": knob.source,
        "verify": knob.verify,
        "revert": knob.revert,
        "traps": "; ".join(knob.traps),
    }


def _plain(value: str) -> str:
    """`{"burst": 200, "qps": 100.0}` as people say it: `qps 100, burst 200`."""
    try:
        parts = json.loads(value)
    except ValueError:
        return value
    if not isinstance(parts, dict):
        return value
    return ", ".join(f"{name} {part:g}" for name, part in sorted(parts.items(), reverse=True))


def tuning_answer(knobs: pl.DataFrame) -> str:
    """What is in force, what is not, and what was taken back since, in one or two sentences."""
    of = {row["knob"]: row for row in knobs.to_dicts() if row["status"] not in _TAKEN_BACK}
    asked = [row for row in of.values() if row["desired"] is not None]
    in_force = [row for row in asked if row["status"] in ("as-desired", "applied")]
    said = [f"{len(in_force)} of {len(asked)} settings that the profile asks for are in force"]
    missing = [row for row in asked if row["status"] in ("differs", "not-verified")]
    if missing:
        said.append("not in force: " + ", ".join(f"{r['knob']} ({r['effective']})" for r in missing))
    lacking = sum(row["status"] == "not-applicable" for row in asked)
    said += [f"{lacking} not applicable on this cluster"] if lacking else []
    warned = [row["note"] for row in asked if row["note"] and row["status"] in ("as-desired", "applied")]
    traps = [f"{row['knob']} ({row['object']})" for row in of.values() if row["status"] == "trap"]
    said += [f"traps: {', '.join(traps)}"] if traps else []
    rate = of.get("kubevirt-api-rate", {}).get("effective")
    said += [f"KubeVirt's client limits: {_plain(rate)}"] if rate else []
    said += warned
    return "; ".join(said) + "."
