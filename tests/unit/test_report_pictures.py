from tasks.report.pictures import report_pictures
from tests.unit.made_up import MANIFEST, made_up


def test_every_chart_is_an_svg_and_a_png_that_name_the_world() -> None:
    placements = made_up((100, 200))["placements"]
    files = dict(report_pictures({"placements": placements}, MANIFEST))
    assert list(files) == ["placement.svg", "placement.png", "placement-2.svg", "placement-2.png"]
    for name, body in files.items():
        is_png = name.endswith(".png")
        assert body.startswith(b"\x89PNG") if is_png else str(MANIFEST["world"]).upper().encode() in body
