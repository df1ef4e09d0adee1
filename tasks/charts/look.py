"""PURE. What all charts share: colours, axes, titles and the world's name.

Colours are the colour-blind safe ones of Okabe and Ito; a colour never carries a meaning alone.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import ceil, floor, log10
from typing import Any, NamedTuple

import altair as alt
from altair.utils.schemapi import debug_mode

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#767676"
STEP_COLOURS = (
    "#999999", "#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#444444"
)  # fmt: skip
STEP_RAMP = (
    "#440154", "#482475", "#414487", "#355F8D", "#2A788E", "#21918C", "#22A884", "#6CCD5A", "#C8E020"
)  # fmt: skip
"""What follows each other, dark to light (viridis): order can be read without hue."""
DARK_STEP_RAMP = (
    "#414488", "#35608d", "#2a798e", "#21928c", "#22a885", "#44bf70", "#7ad151", "#bddf26", "#fde725"
)  # fmt: skip
"""The same on a dark background: its first colour is lighter. In lower case: each is replaced once."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
HEIGHT_PX = 340

_TICKS_S = (
    *(m * 10.0**e for e in (-3, -2, -1, 0) for m in (1, 2, 5)),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
    *(h * 3600.0 for h in (1, 2, 5, 10, 20, 50, 100)),
)
_DURATION_LABEL = (
    "datum.value < 1 ? format(datum.value * 1000, '~r') + ' ms'"
    " : datum.value < 60 ? format(datum.value, '~r') + ' s'"
    " : datum.value < 3600 ? format(datum.value / 60, '~r') + ' min'"
    " : format(datum.value / 3600, '~r') + ' h'"
)

Row = Mapping[str, Any]


class Caption(NamedTuple):
    """What every chart says about its origin: the world's name and the run on its cluster."""

    world: str
    source: str

    def subtitle(self) -> str:
        """`VIRTUAL · virtual:study · run 7f3a`."""
        return f"{self.world.upper()} · {self.source}"


def unchecked() -> AbstractContextManager[None]:
    """Charts made within are not validated by Altair: tests do that, and it takes seconds of a report."""
    return debug_mode(False)


def data(rows: Sequence[Row]) -> alt.InlineData:
    """Small aggregated rows, inlined into the chart."""
    # A tuple: Altair copies the rows of a list with every step of a chart's making.
    return alt.InlineData(values=tuple(rows))


def room_for_names(names: Sequence[str]) -> dict[str, int]:
    """Padding with room to the right of the axes, for names that marks have there; also on a phone."""
    return {"left": 5, "top": 5, "bottom": 5, "right": 6 * max(map(len, names), default=0)}


def decade_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade between two values: a logarithmic axis that can be read."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    return [m * 10.0**e for e in decades for m in (1, 2, 5) if low <= m * 10.0**e <= high]


def titled(
    layers: Sequence[alt.Chart], title: str, caption: Caption, answer: str, **properties: Any
) -> alt.LayerChart:
    """A finished chart: title, world below it, the answer as its text alternative, full width."""
    heading = alt.TitleParams(text=title, subtitle=caption.subtitle())
    # In one go: Altair copies the whole chart with every property that is added later.
    whole = {"description": answer, "width": "container", "height": HEIGHT_PX, **properties}
    return alt.LayerChart(layer=list(layers), title=heading, **whole)


def tips(*fields: str) -> list[alt.Tooltip]:
    """Tooltip that shows these fields of the row as they are."""
    return [alt.Tooltip(f"{field}:N") for field in fields]


def batch_axis(sizes: Sequence[int], title: str = "VMs per batch (log scale)") -> alt.X:
    """Batch sizes on a logarithmic axis that is labelled at the sizes only."""
    low, high = min(sizes), max(sizes)
    scale = alt.Scale(type="log", domain=[low / 2, high * 1.4], nice=False)
    axis = alt.Axis(values=list(sizes), format=",", grid=False, labelOverlap=False)
    return alt.X("batch:Q", title=title, scale=scale, axis=axis)


def seconds_axis(field: str, values: Sequence[float], title: str) -> alt.Y:
    """A duration in seconds on a logarithmic axis, labelled in ms, s, min and h."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known) / 1.4, max(known) * 1.6
    ticks = [tick for tick in _TICKS_S if low <= tick <= high]
    scale = alt.Scale(type="log", domain=[low, high], nice=False, clamp=True)
    axis = alt.Axis(values=ticks, labelExpr=_DURATION_LABEL, labelOverlap="greedy")
    return alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis)


def config(dark: bool = False) -> dict[str, Any]:
    """Vega-Lite configuration of both colour schemes; the background is the page's own."""
    text, quiet, line = ("#e8e8e8", "#b4b4b4", "#3a3f45") if dark else ("#1b1b1b", "#555555", "#dddddd")
    axis = {
        "labelColor": text,
        "titleColor": text,
        "gridColor": line,
        "domainColor": quiet,
        "tickColor": quiet,
    }
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {**axis, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
        "axisX": {"labelAngle": 0},
        "title": {
            "anchor": "start",
            "color": text,
            "subtitleColor": quiet,
            "fontSize": 14,
            "subtitleFontSize": 12,
            "offset": 12,
        },
        "legend": {
            "columns": 4,
            "labelColor": text,
            "titleColor": text,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "symbolBaseFillColor": text,
            "symbolBaseStrokeColor": text,
        },
        "text": {"color": text, "fontSize": 11},
        "rule": {"color": quiet},
    }


DARK_COLOURS = {
    BLUE: "#5C8DFF",
    RED: "#FF6B4A",
    GREY: "#A0A0A0",
    GREEN: "#2FC79A",
    "#444444": "#dddddd",
}
"""What replaces a colour on a dark background so that it keeps a contrast of at least 3:1."""
