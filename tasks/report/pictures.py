"""PURE. The charts of the report as files, for slides and for pages that run no scripts."""

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.charts.pictures import png, svg
from tasks.report.page import caption_of, every_table
from tasks.report.sections import Frames, study_sections


def report_pictures(frames: Frames, manifest: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """(file name, content) of every chart, SVG and PNG, named after its section: `boot.svg`.

    A section's second chart is `placement-2.svg`. Arguments as for `build_report`.
    """
    for section in study_sections(every_table(frames), caption_of(manifest)):
        for number, (chart, _) in enumerate(section.charts, 1):
            name = section.anchor if number == 1 else f"{section.anchor}-{number}"
            yield f"{name}.svg", svg(chart).encode()
            yield f"{name}.png", png(chart)
