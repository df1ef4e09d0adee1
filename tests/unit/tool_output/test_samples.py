"""Every sample file is parsed to its numbers, or refused with the tool's own words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.errors import ToolOutputError
from tasks.analysis.histograms import fio_percentiles_ns, merge, percentile_bin, pool, total
from tasks.tool_output.cyclictest import parse_cyclictest
from tasks.tool_output.fio import FioRun, parse_fio
from tasks.tool_output.jitterdebugger import parse_jitter_samples, parse_jitterdebugger
from tasks.tool_output.l2reflect import parse_l2reflect, stalled
from tasks.tool_output.oslat import parse_oslat
from tasks.tool_output.stress_ng import parse_stress_ng
from tests.unit.tool_output.cases import CASES, FOLDER, REFUSED, Case, data

SHARED = Path(__file__).parents[4] / "shared" / "cases" / "tools"
NOT_A_TOOL_OF_OURS = {"README.md", "vdbench"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_a_sample_is_read(case: Case) -> None:
    assert case.read()


@pytest.mark.parametrize(("parse", "file", "words"), REFUSED, ids=[file for _, file, _ in REFUSED])
def test_what_is_no_result_is_refused_with_the_tools_own_words(
    parse: Callable[..., object], file: str, words: str
) -> None:
    with pytest.raises(ToolOutputError, match=words) as refused:
        parse(data(file))
    assert refused.value.position.startswith("line ")


def test_every_sample_is_read_or_refused() -> None:
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    consoles = {case.console for case in CASES}
    named = {case.file for case in CASES} | {file for _, file, _ in REFUSED} | consoles
    assert there - named == {"README.md"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the samples outside of this repository are not there")
def test_no_sample_is_left_out_or_changed() -> None:
    theirs = {path.relative_to(SHARED).as_posix(): path for path in SHARED.rglob("*") if path.is_file()}
    ours = {name: path for name, path in theirs.items() if name.split("/")[0] not in NOT_A_TOOL_OF_OURS}
    filled = {name: path.read_bytes() for name, path in ours.items() if path.stat().st_size}
    assert {name: data(name) == body for name, body in filled.items()} == dict.fromkeys(filled, True)


def test_fio_a_paced_read() -> None:
    run = parse_fio(data("fio/randread-4k.jsonplus.json"))
    read = run.job.read
    assert run.version == (3, 33)
    assert run.finished_ms == 1796025936189
    assert run.job.options["rate"] == "5202208"
    assert run.job.options["randseed"] == "1000"
    assert (run.job.write, run.job.trim, run.job.started_ms) == (None, None, None)
    assert read is not None
    assert (read.total_ios, read.io_bytes, read.runtime_ms) == (6352, 26017792, 5001)
    assert (read.iops, read.bytes_per_s, read.failed_ios) == (1270.145971, 5202517, 0)
    assert (read.clat.min_ns, read.clat.max_ns, len(read.clat.bins or ())) == (1559, 121293339, 623)
    assert dict(read.clat.percentiles)[99.0] == 20316160
    assert read.lat is not None
    assert dict(read.lat.percentiles)[50.0] == 197632


def metrics(run: FioRun) -> list[object]:
    directions = [each for job in run.jobs for each in job.directions]
    return [each for done in directions for each in (done.clat, done.lat) if each and each.bins is not None]


def test_fios_own_percentiles_follow_from_its_bins_in_every_sample() -> None:
    printed = recomputed = 0
    for case in CASES:
        for metric in metrics(case.read()) if case.parse is parse_fio else ():  # type: ignore[arg-type]
            quantiles = [q for q, _ in metric.percentiles]  # type: ignore[attr-defined]
            values = fio_percentiles_ns(metric.bins, quantiles)  # type: ignore[attr-defined]
            printed += len(quantiles)
            recomputed += values == [value for _, value in metric.percentiles] and len(quantiles)  # type: ignore[attr-defined]
    assert printed == recomputed
    assert printed > 150


def test_fios_bins_hold_every_io() -> None:
    for name in ("client-3hosts", "numjobs3", "layout", "histlog", "randwrite-64k"):
        for job in parse_fio(data(f"fio/{name}.jsonplus.json")).jobs:
            assert [total(each.clat.bins or ()) for each in job.directions] == [
                each.total_ios for each in job.directions
            ]


def test_fios_percentiles_are_those_of_one_merge_of_its_clones() -> None:
    """140 clones that fio merged itself (group_reporting), cut apart in any way, give fio's figures again."""
    write = parse_fio(data("fio/layout.jsonplus.json")).job.write
    assert write is not None
    bins = write.clat.bins or ()
    parts = [bins[i::7] for i in range(7)]
    halves = [[each._replace(count=each.count // 2) for each in part] for part in parts]
    rests = [[each._replace(count=each.count - each.count // 2) for each in part] for part in parts]
    together = merge([*halves, *reversed(rests)])
    filled = tuple(each for each in together if each.count)
    quantiles = [q for q, _ in write.clat.percentiles]
    assert fio_percentiles_ns(filled, quantiles) == [value for _, value in write.clat.percentiles]


def test_fio_hosts_of_a_client_are_told_apart_and_its_own_sum_is_not_read() -> None:
    run = parse_fio(data("fio/client-3hosts.jsonplus.json"))
    assert [(job.host, job.read and job.read.total_ios) for job in run.jobs] == [
        ("127.0.1.3", 101),
        ("127.0.1.1", 101),
        ("127.0.1.2", 101),
    ]


def test_fio_a_sum_row_under_another_name_is_refused() -> None:
    renamed = data("fio/client-3hosts.jsonplus.json").replace(b'"All clients"', b'"All clientz"')
    with pytest.raises(ToolOutputError, match='"percentile" is missing'):
        parse_fio(renamed)
    with pytest.raises(ToolOutputError, match="it is the sum of the rows before it"):
        parse_fio(renamed.replace(b'"global options" : {', b'"global options" : {"clat_percentiles" : "0",'))


def test_jitterdebugger_counts_what_it_did_not_bin() -> None:
    console = data("jitterdebugger/d10s.stdout.txt")
    first, second = parse_jitterdebugger(data("jitterdebugger/d10s.results.json"), console=console).threads
    assert (first.cpu, first.n, first.overflow, first.max_ns) == (0, 9990, 1, 1_160_000)
    assert (second.cpu, second.n, second.overflow, second.max_ns) == (1, 9975, 2, 1_346_000)
    assert first.confirmed
    assert second.confirmed
    both = pool([first.pool, second.pool])
    assert (both.n, both.overflow, both.min_ns, both.max_ns) == (19965, 3, 11_000, 1_346_000)
    p999 = percentile_bin(both.bins, 99.9, both.overflow)
    assert p999 is not None
    assert p999.lower_ns < 1_000_000
    assert percentile_bin(both.bins, 99.99, both.overflow) is None


def test_jitterdebuggers_thread_0_is_the_cpu_that_was_asked_for() -> None:
    (thread,) = parse_jitterdebugger(data("jitterdebugger/affinity-cpu1.results.json"), cpus=[1]).threads
    assert (thread.thread, thread.cpu, thread.overflow) == (0, 1, 0)


def test_jitterdebuggers_console_must_name_the_same_cpu() -> None:
    with pytest.raises(ToolOutputError, match="asked for on CPU 2, the console says CPU 0"):
        parse_jitterdebugger(
            data("jitterdebugger/d10s.results.json"), [2, 3], data("jitterdebugger/d10s.stdout.txt")
        )


def test_a_thread_without_samples_leaves_the_others_readable() -> None:
    run = parse_jitterdebugger(data("jitterdebugger/break50.results.invalid-json.json"))
    first, second = run.threads
    assert (first.n, first.max_ns, first.mean_ns) == (3, 58_000, 45_330)
    assert (second.n, second.min_ns, second.max_ns, second.mean_ns) == (0, None, None, None)


def test_jitterdebuggers_samples_are_those_of_its_histogram_but_the_last() -> None:
    samples = parse_jitter_samples(data("jitterdebugger/l50.samples.raw"))
    threads = parse_jitterdebugger(data("jitterdebugger/l50.results.json")).threads
    assert len(samples) == 99
    assert max(each.value for each in samples if each.thread == 1) * 1000 == threads[1].max_ns


def test_cyclictest_drops_what_is_beyond_its_last_bin() -> None:
    run = parse_cyclictest(data("rt-tests/cyclictest-h100.json"), data("rt-tests/cyclictest-h100.stdout.txt"))
    assert [(each.n, each.overflow, each.overflow_from_ns) for each in run.threads] == [
        (9997, 1133, 100_000),
        (9991, 1193, 100_000),
    ]
    assert all(each.confirmed for each in run.threads)
    assert run.header.realtime is False


def test_cyclictest_without_a_histogram_has_none() -> None:
    run = parse_cyclictest(data("rt-tests/cyclictest-nohist.json"))
    assert [(each.n, each.bins, each.overflow, each.max_ns) for each in run.threads] == [
        (2000, None, None, 975_000),
        (1328, None, None, 362_000),
    ]
    assert pool(each.pool for each in run.threads).n == 0


def test_cyclictest_in_nanoseconds_and_without_the_stray_colons() -> None:
    body = data("rt-tests/cyclictest-h100.json").replace(b'"resolution_in_ns": 0', b'"resolution_in_ns": 1')
    with pytest.raises(ToolOutputError, match="the command line says otherwise"):
        parse_cyclictest(body)
    body = body.replace(b"cyclictest -m", b"cyclictest -m -N")
    run = parse_cyclictest(body.replace(b'line:"', b'line"').replace(b'version:"', b'version"'))
    assert [(each.min_ns, each.max_ns, each.overflow_from_ns) for each in run.threads] == [
        (13, 1208, 100),
        (12, 1478, 100),
    ]


def test_oslats_last_bucket_is_its_overflow() -> None:
    run = parse_oslat(data("rt-tests/oslat.json"), data("rt-tests/oslat.stdout.txt"))
    assert [(each.n, each.overflow, each.max_ns) for each in run.threads] == [
        (139524377, 6000, 91_064_000),
        (191162644, 14542, 44_838_000),
    ]
    assert run.threads[0].bins is not None
    assert run.threads[0].bins[0] == (0, 1000, 139457585)
    assert run.durations_s == (10.026, 10.026)


def test_l2reflects_both_ends_count_the_same_rounds_and_41_warm_up() -> None:
    ends = [parse_l2reflect(data(f"l2reflect/{name}.hist.json")) for name in ("leader", "follower")]
    assert [(end.rounds, end.warm_up, end.overflow) for end in ends] == [(139393, 41, 675), (139393, 41, 686)]
    assert [end.max_ns for end in ends] == [208_268_000, 204_965_000]
    assert not any(end.max_is_of_the_warm_up for end in ends)


def test_l2reflect_stalls_when_no_round_is_added_between_two_copies() -> None:
    before = parse_l2reflect(data("l2reflect/usr2-snapshot.hist.json"))
    after = parse_l2reflect(data("l2reflect/leader.hist.json"))
    assert not stalled(before, after)
    assert stalled(after, after)


def test_l2reflects_file_must_have_the_buckets_that_were_asked_for() -> None:
    with pytest.raises(ToolOutputError, match="not a bucket: multiples of 7 us"):
        parse_l2reflect(data("l2reflect/leader.hist.json"), bucket_us=7)


def test_stress_ngs_date_stays_text() -> None:
    run = parse_stress_ng(data("stress-ng/metrics.yaml"), data("stress-ng/metrics.stdout.txt"))
    assert (run.date, run.time, run.epoch_s) == ("2026:11:30", "08:04:12", 1796025852)
    assert [(each.name, each.bogo_ops) for each in run.stressors] == [
        ("cpu", 1620),
        ("vm", 54516),
        ("timer", 16661),
    ]
    assert run.problems == ()


def test_stress_ng_without_metrics_is_refused() -> None:
    body = data("stress-ng/metrics.yaml").split(b"metrics:")[0] + b"...\n"
    with pytest.raises(ToolOutputError, match="metrics is missing"):
        parse_stress_ng(body)


def test_stress_ng_cut_off_between_two_stressors_is_refused() -> None:
    with pytest.raises(ToolOutputError, match="line 48: cut off"):
        parse_stress_ng(data("stress-ng/metrics.yaml").split(b"    - stressor: timer")[0])


def test_stress_ngs_own_doubts_are_kept() -> None:
    console = b"stress-ng: fail: [1] cpu: metrics corrupted, data is compromised\n"
    assert len(parse_stress_ng(data("stress-ng/sigterm.yaml"), console).problems) == 1
