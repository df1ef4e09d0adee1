"""PURE. The page itself: first screen, sections, evidence, and the one charting bundle.

Everything that came from a cluster passes through the template's escaping; charts and their data
are JSON in which no character can end the script element. A content policy forbids all loading.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.analysis.answers import not_measured
from tasks.analysis.verdicts import worst
from tasks.charts.look import DARK_COLOURS, DARK_STEP_RAMP, STEP_RAMP, Caption, config, unchecked
from tasks.records import TABLES
from tasks.report.bundle import charting_bundle
from tasks.report.evidence import failed_cards, failed_section, failed_vms, provenance, validity_section
from tasks.report.sections import Frames, Section, study_sections
from tasks.report.setting import setting
from tasks.report.tables import table

_HERE = Path(__file__).parent
_DARK = {**DARK_COLOURS, **dict(zip(STEP_RAMP, DARK_STEP_RAMP, strict=True))}
_ON_FIRST_SCREEN = (
    "deploy",
    "boot",
    "boot-vm",
    "boot-steps",
    "placement",
    "io",
    "io-latency",
    "latency-jitterdebugger",
    "latency-l2reflect",
    "tuning",
)


def build_report(frames: Frames, manifest: Mapping[str, Any]) -> str:
    """One self-contained HTML file.

    Args:
        frames: stored tables by name, last complete attempts only; tables may be empty or missing.
        manifest: the run's manifest; `run_id`, `world` and `cluster` are needed, the rest is shown as it is.
    """
    whole, caption = every_table(frames), caption_of(manifest)
    failed = failed_vms(whole)
    with unchecked():
        sections = study_sections(whole, caption)
        evidence = [failed_section(failed), validity_section(whole, caption)]
    evidence_of_checks = [each for each in evidence if each is not None and each.anchor == "preflight"]
    shown = [*sections, *(section for section in evidence if section is not None)]
    return _render(
        manifest=manifest,
        world=caption.world.upper(),
        world_for_print="".join(letter for letter in caption.world.upper() if letter.isalnum()),
        verdict=_verdict(whole["batches"], manifest),
        reasons=_reasons(manifest),
        versions=_versions(manifest),
        setting=setting(manifest),
        profile_name=(manifest.get("profile") or {}).get("name"),
        sentences=[each for each in sections if each.anchor in _ON_FIRST_SCREEN] or evidence_of_checks,
        missing=not_measured(whole),
        sections=shown,
        cards=failed_cards(failed, whole["evidence"]),
        golden=_golden(whole["golden_images"]),
        provenance=provenance(manifest),
        profile=json.dumps(manifest.get("profile"), indent=2, default=str),
        charts=_as_script(_chart_data(shown)),
        bundle=Markup(charting_bundle()),
    )


def every_table(frames: Frames) -> dict[str, pl.DataFrame]:
    """All tables by name; one that is missing is empty."""
    return {name: frames.get(name, _empty(schema)) for name, schema in TABLES.items()}


def caption_of(manifest: Mapping[str, Any]) -> Caption:
    """World, cluster and run, as every chart of the run says them."""
    return Caption(str(manifest["world"]), f"{manifest['cluster']} · run {manifest['run_id']}")


def _empty(schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(schema.empty_table())


def _render(**values: Any) -> str:
    return (
        _environment()
        .get_template("page.html.j2")
        .render(**values, css=_asset("page.css"), js=_asset("page.js"))
    )


def rendered(template: str, charts: Mapping[str, Mapping[str, Any]], **values: Any) -> str:
    """Another page of the same look: a template with styles, scripts and its charts by element id."""
    script = _as_script(_charts_document(charts))
    page = _environment().get_template(template)
    assets = {"css": _asset("page.css"), "js": _asset("page.js"), "bundle": Markup(charting_bundle())}
    return page.render(**values, **assets, charts=script)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _asset(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))


def _as_script(document: Any) -> Markup:
    """JSON that is safe within a script element, whatever its strings hold."""
    text = json.dumps(document, separators=(",", ":"), default=str)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _chart_data(sections: Sequence[Section]) -> dict[str, Any]:
    specs = {
        f"chart-{section.anchor}-{index}": chart.to_dict(validate=False)
        for section in sections
        for index, (chart, _) in enumerate(section.charts)
    }
    return _charts_document(specs)


def _charts_document(charts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the page's script draws: charts by element id, and the looks of both colour schemes."""
    specs = {name: {**chart, "config": {}} for name, chart in charts.items()}
    return {"specs": specs, "light": config(), "dark": config(dark=True), "colours": _DARK}


def _verdict(batches: pl.DataFrame, manifest: Mapping[str, Any]) -> str | None:
    stored: str | None = manifest.get("verdict")
    if stored is not None or batches.is_empty():
        return stored
    return worst(batches.get_column("verdict").to_list())


def _reasons(manifest: Mapping[str, Any]) -> list[str]:
    return [str(reason) for reason in manifest.get("reasons") or []]


def _versions(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Ours and the cluster's; the libraries' are under provenance."""
    every = dict(manifest.get("versions") or {})
    of_cluster = dict((manifest.get("comparability") or {}).get("versions") or {})
    ours = {"virtscale": every["virtscale"]} if "virtscale" in every else {}
    return [(str(name), str(version)) for name, version in ({**ours, **of_cluster} or every).items()]


def _golden(images: pl.DataFrame) -> list[Any]:
    if images.is_empty():
        return []
    columns = [name for name in TABLES["golden_images"].names if name != "world"]
    return [table("golden image", images.select(columns), "golden_images")]
