"""PURE. A section of the report."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import altair as alt

from tasks.report.tables import Table


@dataclass(frozen=True, slots=True)
class Section:
    """One question of the study. `charts` pairs each chart with how to read it."""

    anchor: str
    question: str
    answer: str
    method: Sequence[str]
    charts: Sequence[tuple[alt.LayerChart, str]] = ()
    tables: Sequence[Table] = field(default=())
