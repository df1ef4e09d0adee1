"""PURE. Charts as files: SVG and PNG, rendered by vl-convert without a browser or network."""

import json
from typing import Any

import altair as alt
import vl_convert

from tasks.charts.look import config

VEGA_LITE = "6.4"
WIDTH_PX = 760


def svg(chart: alt.LayerChart) -> str:
    """The chart as SVG on white, in the colours of the light scheme."""
    return str(vl_convert.vegalite_to_svg(_static(chart), vl_version=VEGA_LITE))


def png(chart: alt.LayerChart, scale: float = 2.0) -> bytes:
    """The chart as PNG on white, `scale` device pixels per pixel."""
    return bytes(vl_convert.vegalite_to_png(_static(chart), vl_version=VEGA_LITE, scale=scale))


def _static(chart: alt.LayerChart) -> str:
    spec: dict[str, Any] = chart.to_dict()
    return json.dumps(spec | {"width": WIDTH_PX, "background": "white", "config": _light()})


def _light() -> dict[str, Any]:
    return config() | {"background": "white", "font": "DejaVu Sans, Arial, sans-serif"}
