"""The sample files: which parser reads each, with which second witness, or why it is refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tasks.tool_output.cyclictest import parse_cyclictest
from tasks.tool_output.fio import parse_fio
from tasks.tool_output.jitterdebugger import parse_jitter_samples, parse_jitterdebugger
from tasks.tool_output.l2reflect import parse_l2reflect
from tasks.tool_output.oslat import parse_oslat
from tasks.tool_output.stress_ng import parse_stress_ng

FOLDER = Path(__file__).parents[2] / "data" / "tools"


class Case(NamedTuple):
    """A parser of (data, console), the sample's file and the file of its console, if it is read too."""

    parse: Callable[..., object]
    file: str
    console: str | None = None

    def read(self) -> object:
        return self.parse(data(self.file), console=data(self.console) if self.console else b"")


def without_console(parse: Callable[[bytes], object]) -> Callable[..., object]:
    return lambda data, console=b"": parse(data)


def data(file: str) -> bytes:
    return (FOLDER / file).read_bytes()


FIO_FILES = [
    "baseline-1io.jsonplus.json",
    "baseline-30io-think100ms.jsonplus.json",
    "client-3hosts.jsonplus.json",
    "client-error.json",
    "client-job-killed-rc0.json",
    "client-server-frozen.json",
    "client-server-killed.json",
    "crash-rate-randrw.json",
    "error-enospc.json",
    "error-too-many-open-files.json",
    "error-verify-continue-rc0.json",
    "histlog.jsonplus.json",
    "layout.jsonplus.json",
    "numjobs3.jsonplus.json",
    "opendir-prefix-on-stdout.txt",
    "randread-4k.jsonplus.json",
    "randwrite-64k.jsonplus.json",
    "sigterm.json",
]

CASES = [
    *(Case(parse_fio, f"fio/{name}") for name in FIO_FILES),
    Case(
        partial(parse_jitterdebugger, cpus=[0, 1]),
        "jitterdebugger/d10s.results.json",
        "jitterdebugger/d10s.stdout.txt",
    ),
    Case(partial(parse_jitterdebugger, cpus=[1]), "jitterdebugger/affinity-cpu1.results.json"),
    Case(partial(parse_jitterdebugger, cpus=[0, 1]), "jitterdebugger/l50.results.json"),
    Case(partial(parse_jitterdebugger, cpus=[0, 1]), "jitterdebugger/break50.results.invalid-json.json"),
    Case(without_console(parse_jitter_samples), "jitterdebugger/l50.samples.raw"),
    Case(parse_cyclictest, "rt-tests/cyclictest-h100.json", "rt-tests/cyclictest-h100.stdout.txt"),
    Case(parse_cyclictest, "rt-tests/cyclictest-nohist.json", "rt-tests/cyclictest-nohist.stdout.txt"),
    Case(parse_oslat, "rt-tests/oslat.json", "rt-tests/oslat.stdout.txt"),
    Case(without_console(parse_l2reflect), "l2reflect/leader.hist.json"),
    Case(without_console(parse_l2reflect), "l2reflect/follower.hist.json"),
    Case(without_console(parse_l2reflect), "l2reflect/usr2-snapshot.hist.json"),
    Case(parse_stress_ng, "stress-ng/metrics.yaml", "stress-ng/metrics.stdout.txt"),
    Case(parse_stress_ng, "stress-ng/sigterm.yaml", "stress-ng/sigterm.stdout.txt"),
]

REFUSED: list[tuple[Callable[..., object], str, str]] = [
    (parse_fio, "fio/client-server-frozen.stdout.txt", "timeout on cmd SEND_ETA"),
    (parse_fio, "fio/client.fio", r"it says '\[global\]'|but '\[global\]'"),
    (parse_fio, "fio/crash-rate-randrw.stdout.txt", "opendir added 2100 files"),
    (parse_fio, "fio/error-enospc.stdout.txt", "No space left on device"),
    (parse_fio, "fio/histlog_clat_hist.1.log", "no result of fio"),
    (parse_fio, "fio/layout.fio", "no result of fio"),
    (parse_fio, "fio/ok-and-bad.fio", "no result of fio"),
    (parse_fio, "fio/randread-4k.fio", "no result of fio"),
    (parse_jitterdebugger, "jitterdebugger/bare-seconds.stderr.txt", "Invalid value for duration"),
    (parse_jitterdebugger, "jitterdebugger/break50.verbose.stdout.txt", "Could not open"),
    (parse_jitterdebugger, "jitterdebugger/d10s.outdir-listing.txt", "cmdline"),
    (parse_jitterdebugger, "jitterdebugger/d10s.stdout.txt", "Could not open"),
    (parse_jitterdebugger, "jitterdebugger/help.txt", r"jitterdebugger \[options\]"),
    (parse_jitterdebugger, "jitterdebugger/nonroot.txt", "No permission to open"),
    (parse_jitterdebugger, "jitterdebugger/verbose.stdout.txt", "affinity: 0,1"),
    (parse_l2reflect, "l2reflect/leader.stderr-tail.txt", "looking for player HELO"),
    (parse_l2reflect, "l2reflect/tui-last-screen.txt", "tistics"),
    (parse_cyclictest, "rt-tests/cyclictest-h100.stdout.txt", "cpu_dma_latency set to 0us"),
    (parse_cyclictest, "rt-tests/cyclictest-nohist.stdout.txt", "cpu_dma_latency set to 0us"),
    (parse_cyclictest, "rt-tests/cyclictest-usr1.stderr.txt", "not JSON"),
    (parse_oslat, "rt-tests/hwlatdetect-unavailable.txt", "hwlat tracer not available"),
    (parse_oslat, "rt-tests/oslat.stdout.txt", "oslat V 2.40"),
    (parse_stress_ng, "stress-ng/metrics.stdout.txt", "setting to a 6 second run"),
    (parse_stress_ng, "stress-ng/sigterm.stdout.txt", "setting to a 60 second run"),
]
