"""fio's files that no sample shows, and what a run is worth."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import ToolOutputError
from tasks.analysis.histograms import fio_percentiles_ns, merge
from tasks.tool_output.fio import FioRun, parse_fio, parse_fio_intervals
from tasks.tool_output.fio_bins import BINS, LAST, edges, index_of, middle_ns
from tasks.tool_output.fio_verdict import FioExpectation, judge
from tests.unit.tool_output.cases import data
from tests.unit.tool_output.written import QUANTILES, document

HOSTS = frozenset({"127.0.1.1", "127.0.1.2", "127.0.1.3"})
LATENCIES = st.lists(st.integers(0, 10**11), min_size=1, max_size=30)
A_FEW = settings(max_examples=40, deadline=None)


def sample(name: str, console: str | None = None) -> FioRun:
    return parse_fio(data(f"fio/{name}"), data(f"fio/{console}") if console else b"")


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("client-job-killed-rc0.json", "127.0.1.2: it was killed: 15 IOs", {"127.0.1.1", "127.0.1.3"}),
        ("client-server-frozen.json", "127.0.1.3: there is no result", {"127.0.1.1", "127.0.1.2"}),
        ("client-server-killed.json", "127.0.1.1: there is no result", {"127.0.1.2", "127.0.1.3"}),
    ],
)
def test_a_host_that_was_lost_is_named_and_only_the_others_count(name: str, bad: str, good: set[str]) -> None:
    verdict = judge(sample(name), FioExpectation(hosts=HOSTS))
    assert verdict.verdict == "incomplete"
    assert any(reason.startswith(bad) for reason in verdict.reasons)
    assert {job.host for job in verdict.good} == good


def test_a_refused_host_is_named_though_fio_ended_with_0() -> None:
    """Composed: two lines before the JSON, the third host's row gone, "All clients" before the last row."""
    root = json.loads(data("fio/client-3hosts.jsonplus.json"))
    first, second, _, everyone = root["client_stats"]
    root["client_stats"] = [first, everyone, second]
    notes = b"fio: connect: Connection refused\nfio: failed to connect to 127.0.1.2:8765\n\n"
    verdict = judge(
        parse_fio(notes + json.dumps(root, indent=2).encode()), FioExpectation(exit_code=0, hosts=HOSTS)
    )
    assert verdict.verdict == "incomplete"
    assert "127.0.1.2: there is no result" in verdict.reasons
    assert [job.read and job.read.total_ios for job in verdict.good] == [101, 101]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("error-enospc.json", "error 28 (ENOSPC)"),
        ("error-too-many-open-files.json", "error 24 (EMFILE)"),
        ("error-verify-continue-rc0.json", "3 IOs failed, the first with error 84"),
        ("sigterm.json", "terminating on signal 15"),
        ("crash-rate-randrw.json", "axboe/fio#1642"),
        ("client-error.json", "error 28 (ENOSPC)"),
    ],
)
def test_a_failed_run_is_failed_with_its_reason(name: str, reason: str) -> None:
    verdict = judge(sample(name), FioExpectation())
    assert verdict.verdict == "failed"
    assert any(reason in each for each in verdict.reasons)
    assert verdict.good == ()


@pytest.mark.parametrize("name", ["randread-4k", "randwrite-64k", "numjobs3", "layout", "histlog"])
def test_a_good_run_is_complete(name: str) -> None:
    verdict = judge(sample(f"{name}.jsonplus.json"), FioExpectation(exit_code=0, with_bins=True))
    assert (verdict.verdict, verdict.reasons) == ("complete", ())


def test_a_run_that_ended_early_failed() -> None:
    verdict = judge(sample("sigterm.json"), FioExpectation(exit_code=128, runtime_s=30))
    assert verdict.reasons[:2] == ("t: it ran 1.7 s of 30 s", "exit code 128")


def test_what_the_console_says_counts() -> None:
    run = parse_fio(data("fio/randread-4k.jsonplus.json"), b"fio: pid=7, got signal=6\n")
    assert judge(run, FioExpectation()).verdict == "failed"


def test_many_equal_lines_are_one_note_with_a_count() -> None:
    notes = parse_fio(b"verify: bad magic header\n" * 5_000 + document([100])).notes
    assert [(note.text, note.times, note.harmless) for note in notes] == [
        ("verify: bad magic header", 5_000, False)
    ]


def test_a_document_may_begin_in_the_middle_of_a_line() -> None:
    assert sample("error-too-many-open-files.json").job.error == 24


def test_of_several_documents_the_last_one_counts_and_each_is_cumulative() -> None:
    written = b"".join(document([1000] * n, n * 10, 1_796_025_946 + n) for n in (10, 20, 30, 40))
    runs = parse_fio_intervals(written)
    totals = [run.job.read.total_ios for run in runs if run.job.read]
    assert totals == [10, 20, 30, 40]
    assert parse_fio(written) == runs[-1]


def test_a_document_that_counts_less_than_the_one_before_is_refused() -> None:
    with pytest.raises(ToolOutputError, match="fewer IOs than the document before it"):
        parse_fio(document([1000] * 20) + document([1000] * 10))


def test_a_cut_off_document_is_refused_even_after_a_whole_one() -> None:
    whole = document([1000] * 10)
    with pytest.raises(ToolOutputError, match=r"line \d+ column \d+: not JSON"):
        parse_fio(whole + whole[:700])


def test_a_document_whose_beginning_is_lost_is_not_passed_over() -> None:
    whole = document([1000] * 10)
    with pytest.raises(ToolOutputError, match="a piece of JSON outside of a document"):
        parse_fio(whole + whole[20:])


def test_the_start_of_a_job_is_known_from_fio_3_36() -> None:
    assert parse_fio(document([1000], job_start=1_796_025_945_000)).job.started_ms == 1_796_025_945_000


def test_numbers_that_fio_printed_as_nonsense_are_refused() -> None:
    """axboe/fio#1941: an average of -1e140."""
    broken = document([1000, 2000]).replace(b'"mean": 1500.0', b'"mean": -1e140')
    with pytest.raises(ToolOutputError, match=r"line \d+ \(jobs/0/read/clat_ns/mean\): a number >= 0"):
        parse_fio(broken)


def test_compact_json_is_read_too() -> None:
    indented = document([1000, 2000])
    compact = json.dumps(json.loads(indented)).encode()
    assert parse_fio(b"note\n" + compact + b"\n").jobs == parse_fio(indented).jobs


@given(st.integers(0, 2**63))
def test_a_latency_lies_in_its_bin(ns: int) -> None:
    index = index_of(ns)
    _, lower, upper = edges(index)
    assert lower <= ns
    assert ns < upper or index == LAST
    assert lower <= middle_ns(index) < upper
    assert upper - lower <= max(1, lower / 64)


def test_the_bins_leave_no_gap() -> None:
    ranges = [edges(index) for index in range(BINS)]
    assert all(a.upper_ns == b.lower_ns for a, b in pairwise(ranges))


@A_FEW
@given(LATENCIES)
def test_what_fio_wrote_is_read_back(latencies: list[int]) -> None:
    read = parse_fio(document(latencies, runtime_ms=777)).job.read
    assert read is not None
    assert (read.total_ios, read.clat.min_ns, read.clat.max_ns) == (
        len(latencies),
        min(latencies),
        max(latencies),
    )


@A_FEW
@given(st.lists(LATENCIES, min_size=1, max_size=5))
def test_percentiles_of_merged_guests_are_those_that_fio_prints_for_all_their_ios(
    guests: list[list[int]],
) -> None:
    reads = [parse_fio(document(latencies)).job.read for latencies in guests]
    merged = merge(read.clat.bins or () for read in reads if read)
    everything = parse_fio(document([each for latencies in guests for each in latencies])).job.read
    assert everything is not None
    assert merged == everything.clat.bins
    assert fio_percentiles_ns(merged, QUANTILES) == [value for _, value in everything.clat.percentiles]
