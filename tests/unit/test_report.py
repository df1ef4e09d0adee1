import json
import re
from typing import Any
from urllib.parse import unquote

import polars as pl
import pytest
import vl_convert

from tasks.charts.boot_steps import ramp
from tasks.charts.look import DARK_COLOURS, DARK_STEP_RAMP, STEP_RAMP, Caption, config
from tasks.charts.pictures import VEGA_LITE, png, svg
from tasks.report import build_report
from tasks.report.sections import study_sections
from tasks.report.tables import csv_uri, table
from tests.unit.made_up import MANIFEST, frame, made_up

EVIL = "</script><img src=x onerror=alert(1)>"
INVALID = MANIFEST | {"verdict": "invalid", "reasons": [f"boot 400: vm_not_ok: {EVIL}"]}
UNSEEN = ("ip_known", "tcp_open", "ssh_banner", "ssh_ready")


@pytest.fixture(scope="module")
def frames() -> dict[str, pl.DataFrame]:
    made = made_up((100, 200, 400), late=60)
    evil = pl.when(pl.col("state") != "ok").then(pl.lit(EVIL)).alias("reason")
    return made | {
        "vm_boots": made["vm_boots"].with_columns(evil),
        "placements": made["placements"].with_columns(node=pl.lit(EVIL)),
        "checks": frame("checks", [{"world": "virtual", "name": EVIL, "status": "ok"}]),
        "observer": frame("observer", [_second(5)]),
        "evidence": frame("evidence", [_kept("vm-00399", EVIL)]),
    }


def _second(second: int) -> dict[str, Any]:
    keys = {"world": "virtual", "stage": "boot", "batch": 400, "repeat": 1, "attempt": 1, "second": second}
    told = {"lock_aborts": 1234, "client_throttled_s": 90.0}
    return keys | {"http_429": 3, "relists": 1, "resumed": 2, "watch_lag_ms": 12.5, **told}


def _kept(vm: str, text: str) -> dict[str, Any]:
    keys = {"world": "virtual", "stage": "boot", "batch": 400, "repeat": 1, "attempt": 1, "vm": vm}
    return keys | {"kind": "VirtualMachine", "name": vm, "document": text}


@pytest.fixture(scope="module")
def page(frames: dict[str, pl.DataFrame]) -> str:
    return build_report(frames, INVALID)


def charts_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    specs: dict[str, Any] = json.loads(found.group(1))["specs"]
    return specs


def test_it_is_one_small_file_that_may_not_load_anything(page: str) -> None:
    assert len(page.encode()) < 5 * 2**20
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page.replace(EVIL, ""))
    assert "@import" not in page
    assert page.count("<link") == 0


def test_text_from_the_cluster_is_escaped_everywhere(page: str) -> None:
    assert EVIL not in page
    assert "onerror=alert(1)&gt;" in page
    assert page.count("<script") == page.count("</script>") == 3


def test_the_world_is_on_the_page_on_paper_and_in_every_chart(page: str) -> None:
    assert "<strong>VIRTUAL</strong>" in page
    assert 'content: "VIRTUAL"' in page
    assert all(spec["title"]["subtitle"].startswith("VIRTUAL") for spec in charts_of(page).values())


def test_a_null_percentile_is_shown_as_beyond_the_limit_and_never_as_zero(page: str) -> None:
    assert "&gt; 30 min" in page
    assert "A boot storm of 400 VMs takes &gt; 30 min" in page


def test_what_happened_beside_the_batches_is_told(page: str) -> None:
    assert "found their snapshot locked, and were tried again: 1,234." in page
    assert "limits: 1 min 30 s, all added up." in page
    assert "watches: resumed 2, listed again 1." in page


def test_the_verdict_and_its_reasons_are_on_the_first_screen(page: str) -> None:
    first = page[: page.index("<h2>")]
    assert "✕ Invalid." in first
    assert "vm_not_ok" in first


def test_each_sentence_of_the_first_screen_links_to_a_section(page: str) -> None:
    targets = re.findall(r'href="#([a-z-]+)"', page)
    assert len(targets) >= 4
    assert all(f'id="{target}"' in page for target in targets)


def test_failed_vms_are_listed_with_what_was_kept_of_them(page: str) -> None:
    assert "60 VM records are not ok." in page
    assert "vm-00399" in page
    assert "VirtualMachine" in page


def test_every_chart_compiles_in_both_schemes(page: str) -> None:
    for spec in charts_of(page).values():
        text = json.dumps(spec | {"width": 600, "config": config(dark=True)})
        assert vl_convert.vegalite_to_vega(text, vl_version=VEGA_LITE)
        assert spec["description"]


def test_questions_of_a_whole_run(page: str) -> None:
    questions = ["deploy", "deploy-vm", "boot", "boot-vm", "boot-steps", "placement", "delete", "stop"]
    assert re.findall(r'<section id="([a-z-]+)">', page) == [*questions, "failed", "validity", "provenance"]


def test_a_run_without_boots_has_no_empty_chart() -> None:
    page = build_report(made_up((100, 200), stages=("deploy", "delete")), MANIFEST)
    assert re.findall(r'<section id="([a-z-]+)">', page) == [
        "deploy", "deploy-vm", "delete", "validity", "provenance",
    ]  # fmt: skip
    assert set(charts_of(page)) == {
        "chart-deploy-0", "chart-deploy-vm-0", "chart-delete-0", "chart-validity-0"
    }  # fmt: skip
    assert "Not measured in this run: boot storms, IO scaling and jitter." in page


def test_a_testbed_without_guests_reports_running() -> None:
    manifest = MANIFEST | {"world": "testbed", "cluster": "testbed"}
    page = build_report(made_up((1, 2, 4), unseen=UNSEEN), manifest)
    assert "<strong>TESTBED</strong>" in page
    assert "Of 4 VMs half are running after" in page
    assert "SSH" not in page[: page.index("<script>")]


def test_a_run_without_measurements_says_so() -> None:
    page = build_report({}, MANIFEST)
    assert "Nothing was measured." in page
    assert charts_of(page) == {}


def test_a_run_of_preflight_alone_shows_what_it_found() -> None:
    checks = [
        {"world": "virtual", "name": name, "status": status}
        for name, status in (("api", "ok"), ("capacity", "ok"), ("canary", "skipped"))
    ]
    page = build_report({"checks": frame("checks", checks)}, MANIFEST)
    assert "Nothing was measured." in page
    assert "Preflight made 3 checks: 2 ok, 1 skipped." in page[: page.index('<section id="preflight">')]
    assert "canary" in page


def test_the_first_screen_names_the_profile(page: str) -> None:
    first_screen = page[: page.index("<section")]
    assert f"profile {MANIFEST['profile']['name']} · {MANIFEST['cluster']}" in first_screen


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((100, 200, 400), "if every larger batch confirms it."),
        ((3200, 6000), "confirms it; growth of 6,000 over 3,200 VMs is compared with 1.875."),
    ],
)
def test_steps_that_are_no_doublings_are_named_where_there_are_any(sizes: tuple[int, ...], said: str) -> None:
    sections = study_sections(made_up(sizes, stages=("deploy",)), Caption("virtual", "x"))
    assert any(line.endswith(said) for line in sections[0].method)


def test_a_stage_in_which_no_vm_got_anywhere_still_has_its_report() -> None:
    frames = made_up((2,), stages=("boot",))
    batches = frames["batches"].with_columns(
        pl.lit(None, pl.Float64).alias("end_to_end_s"), pl.lit(None, pl.Float64).alias("limit_s")
    )
    steps = pl.selectors.ends_with("_s")
    boots = frames["vm_boots"].with_columns(pl.when(False).then(steps), state=pl.lit("failed"))
    percentiles = frames["percentiles"].with_columns(pl.lit(None, pl.Float64).alias("value_s"))
    page = build_report(
        frames | {"batches": batches, "vm_boots": boots, "percentiles": percentiles}, MANIFEST
    )
    assert "A boot storm of 2 VMs takes &gt; limit" in page
    assert "2 never were within limit" in page


def test_a_table_keeps_raw_values_for_sorting_and_in_its_csv() -> None:
    rows = pl.DataFrame({"batch": [100], "max_s": [None], "p50_s": [161.2], "limit_s": [1800.0]})
    shown = table("t", rows.cast({"max_s": pl.Float64}), "batches")
    assert [cell.text for cell in shown.rows[0]] == ["100", "> 30 min", "2 min 41 s", "30 min"]
    assert [cell.value for cell in shown.rows[0]] == ["100", "Infinity", "161.2", "1800.0"]
    assert unquote(shown.csv_uri).splitlines()[-1] == "100,,161.2,1800.0"


def test_a_null_outside_the_percentiles_is_not_called_beyond_the_limit() -> None:
    rows = pl.DataFrame({"quiesce_s": [None, 2.0], "limit_s": [60.0, 60.0]})
    assert table("t", rows, "batches").rows[0][0].text == "\N{EN DASH}"


def test_a_column_without_any_value_is_named_and_left_out() -> None:
    rows = pl.DataFrame({"batch": [1], "quiesce_s": [None]})
    shown = table("t", rows, "batches")
    assert (shown.headings, shown.unobserved) == ([("batch", True)], ["quiesce"])
    assert unquote(shown.csv_uri).endswith("batch,quiesce_s\n1,\n")


def test_a_spreadsheet_does_not_run_what_a_cluster_wrote() -> None:
    assert "'=cmd()" in unquote(csv_uri(pl.DataFrame({"reason": ["=cmd()"]})))


def test_pictures_carry_the_world_and_the_bend() -> None:
    caption = Caption("virtual", "virtual:study")
    frames = made_up((400, 800, 1600, 3200))
    boot = next(each for each in study_sections(frames, caption) if each.anchor == "boot")
    picture = svg(boot.charts[0][0])
    assert "VIRTUAL" in picture
    assert "bends here" in picture
    assert png(boot.charts[0][0], scale=1.0).startswith(b"\x89PNG")


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("dark", "back"), [(False, "#ffffff"), (True, "#15181c")])
def test_text_and_marks_stand_out_in_both_schemes(dark: bool, back: str) -> None:
    look = config(dark)
    texts = [look["axis"]["labelColor"], look["title"]["color"], look["title"]["subtitleColor"]]
    assert all(_contrast(text, back) >= 4.5 for text in texts)
    marks = DARK_COLOURS.values() if dark else DARK_COLOURS.keys()
    assert all(_contrast(mark, back) >= 3 for mark in marks)


@pytest.mark.parametrize("colours", [STEP_RAMP, DARK_STEP_RAMP])
def test_steps_that_follow_each_other_grow_lighter(colours: tuple[str, ...]) -> None:
    lights = [_luminance(colour) for colour in colours]
    assert lights == sorted(lights)
    assert len(set(colours)) == len(colours)


def test_no_colour_of_a_step_is_replaced_twice_for_the_dark_scheme() -> None:
    assert set(STEP_RAMP).isdisjoint(DARK_STEP_RAMP)
    assert set(STEP_RAMP).isdisjoint(DARK_COLOURS.values())


@pytest.mark.parametrize("n", [1, 2, 5, 9, 12])
def test_any_number_of_steps_has_its_colours(n: int) -> None:
    assert len(ramp(n)) == n
    assert len(set(ramp(n))) == min(n, len(STEP_RAMP))
