"""Damaged output is an error with a position, or still the right number; `make prove-parsers` does more."""

import re

import pytest

from infra.errors import ToolOutputError
from tasks.tool_output.integrity import digest, intact
from tests.benchmarks.prove_parsers import prove
from tests.unit.tool_output.cases import CASES, Case, data

MUTATIONS = 60
DEEP = b"[" * 200_000


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_damage_is_refused_or_harmless(case: Case) -> None:
    proof = prove(case, MUTATIONS)
    assert proof.failures == []
    assert proof.outcomes["refused"] > MUTATIONS // 5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
@pytest.mark.parametrize(
    "body", [b"", b"\n\n", b"\x00" * 100, DEEP, b'{"fio version": ' + DEEP, b"{}", b"null", b"7"]
)
def test_what_is_nothing_like_a_result_is_refused(case: Case, body: bytes) -> None:
    if case.file.endswith(".raw") and len(body) % 28 == 0:
        return
    with pytest.raises(ToolOutputError):
        case.parse(body)


def test_an_error_says_the_line_of_the_value() -> None:
    body = data("jitterdebugger/l50.results.json")
    damaged = body.replace(b'"count": 50', b'"count": 5', 1)
    line = body[: body.index(b'"count": 50')].count(b"\n") + 1
    with pytest.raises(ToolOutputError, match=r"the histogram holds 50 samples, 5 were counted") as refused:
        CASES[20].parse(damaged)
    assert re.match(r"line \d+ \(cpu/0\)", refused.value.position)
    assert int(re.findall(r"\d+", refused.value.position)[0]) < line


def test_a_digest_from_the_guest_sees_what_no_parser_can() -> None:
    body = data("l2reflect/leader.hist.json")
    damaged = body.replace(b'"max": 208268', b'"max": 208269')
    assert intact("l2reflect", body, digest(body)) == body
    with pytest.raises(ToolOutputError, match="damaged on its way"):
        intact("l2reflect", damaged, digest(body))
