"""fio in a virtual guest: real job files in, json+ out that the same parser accepts as of a real guest."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from infra.cluster.virtual.ceph_clients import CephClients
from infra.cluster.virtual.loop import EPOCH, VirtualLoop, new_loop
from infra.cluster.virtual.machines import Machine
from infra.cluster.virtual.storage import Ceph
from infra.errors import GuestError
from infra.guests.programs import Invocation
from infra.guests.programs.fio import Fio
from infra.guests.programs.fio_job import sections
from infra.guests.programs.fio_output import bin_middle, fio_rank
from tasks.analysis.histograms import fio_rank as parsers_rank
from tasks.io_plan import DATA, JOBS, LAYOUT, cells_of, dataset_bytes, layout_job, measuring_jobs, phases_of
from tasks.profile import Io
from tasks.tool_output.fio import parse_fio
from tasks.tool_output.fio_bins import BINS, edges, middle_ns
from tasks.tool_output.fio_verdict import FioExpectation, judge

IO = Io(cap_gib_per_s=0.1, run_s=20, ramp_s=2, baseline_s=10)
CELLS = cells_of(IO, 4, 2)
PHASES = phases_of(IO, CELLS)


class LoopClock:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

    def now_ns(self) -> int:
        return self.loop.now_ns

    def wall(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.loop.now_ns // 1000)

    def sleep(self, seconds: float) -> asyncio.Future[None]:
        return self.loop.wake_at(self.loop.now_ns + round(seconds * 1e9))


class Guests:
    """A few guests with fio, their files by name."""

    def __init__(self, seed: int = 7) -> None:
        self.loop = new_loop()
        clock = LoopClock(self.loop)
        self.fio = Fio(self, clock, CephClients(Ceph(), clock, seed))  # type: ignore[arg-type]
        self.files: dict[str, dict[str, bytes]] = {f"vm-{i}": {} for i in range(4)}

    def machine(self, vm: str) -> Machine:
        return Machine(vm, f"disk of {vm}", "node", boots=True)

    def run(self, *arguments: str) -> dict[str, bytes | GuestError]:
        async def everywhere() -> list[Any]:
            started = [self.fio(Invocation(vm, arguments, files)) for vm, files in self.files.items()]
            return await asyncio.gather(*started, return_exceptions=True)

        return dict(zip(self.files, self.loop.run_until_complete(everywhere()), strict=True))


@pytest.fixture
def guests() -> Guests:
    """Guests with their data sets laid out and their job files put."""
    made = Guests()
    for i, (vm, files) in enumerate(made.files.items()):
        files[LAYOUT] = layout_job(IO)
        files[JOBS] = measuring_jobs(IO, PHASES, vm, i)
    made.run("--output-format=json+", LAYOUT)
    return made


def test_a_layout_writes_every_file_and_takes_the_storages_time(guests: Guests) -> None:
    before_ns = guests.loop.now_ns
    said = guests.run("--output-format=json+", LAYOUT)["vm-0"]
    assert isinstance(said, bytes)
    done = parse_fio(said).job.write
    assert done is not None
    assert done.io_bytes == dataset_bytes(IO)
    assert guests.loop.now_ns - before_ns >= dataset_bytes(IO) / (Ceph().client_gib_per_s * 2**30) * 1e9
    assert guests.files["vm-0"][f"{DATA}/.dataset"] == b"2100 11010048000"


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("phase", ["baseline", "load"])
def test_the_parser_of_real_guests_accepts_every_phase(guests: Guests, cell: Any, phase: str) -> None:
    section = cell.section(phase)
    said = guests.run("--output-format=json+", "--output=/run/out", f"--section={section}", JOBS)
    assert set(said.values()) == {b""}
    for files in guests.files.values():
        run = parse_fio(files["/run/out"])
        assert (
            judge(
                run, FioExpectation(runtime_s=20 if phase == "load" else 10, jobs=1, with_bins=True)
            ).reasons
            == ()
        )
        (done,) = run.job.directions
        assert run.job.name == section
        assert done is getattr(run.job, cell.pattern)
        if phase == "load":
            assert done.bytes_per_s <= 0.1 * 2**30 / 4 + 1
            assert done.bytes_per_s >= 0.99 * 0.1 * 2**30 / 4


def test_the_output_has_every_key_of_a_real_one(guests: Guests) -> None:
    guests.run("--output=/run/out", "--section=4k-read-load", JOBS)
    body = guests.files["vm-0"]["/run/out"]
    assert body.startswith(b"fio: opendir added 2100 files\n")
    job = orjson.loads(body[body.index(b"{") :])["jobs"][0]
    keys = {"jobname", "groupid", "error", "eta", "elapsed", "job options", "read", "write", "trim", "sync"}
    keys |= {"job_runtime", "usr_cpu", "sys_cpu", "ctx", "majf", "minf", "iodepth_level", "iodepth_submit"}
    keys |= {"iodepth_complete", "latency_ns", "latency_us", "latency_ms", "latency_depth", "latency_target"}
    assert job.keys() == keys | {"latency_percentile", "latency_window"}
    tables = [job[name] for name in ("latency_ns", "latency_us", "latency_ms")]
    assert sum(sum(table.values()) for table in tables) == pytest.approx(100, abs=0.01)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    def outputs(seed: int) -> list[bytes]:
        made = Guests(seed)
        for i, (vm, files) in enumerate(made.files.items()):
            files[LAYOUT], files[JOBS] = layout_job(IO), measuring_jobs(IO, PHASES, vm, i)
        made.run(LAYOUT)
        made.run("--output=/run/out", "--section=4k-write-load", JOBS)
        return [files["/run/out"] for files in made.files.values()]

    assert outputs(7) == outputs(7)
    assert outputs(7) != outputs(8)
    assert len(set(outputs(7))) == 4


def test_reads_without_a_data_set_end_as_fio_ends_them() -> None:
    made = Guests()
    made.files["vm-0"][JOBS] = measuring_jobs(IO, PHASES, "vm-0", 0)
    said = made.run("--section=4k-read-load", JOBS)["vm-0"]
    assert isinstance(said, GuestError)
    assert "you need to specify size=" in str(said)


def test_a_fio_that_dies_takes_nothing_from_the_others(guests: Guests) -> None:
    guests.fio.dies = lambda vm: vm == "vm-2"
    said = guests.run("--output=/run/out", "--section=4k-read-load", JOBS)
    assert isinstance(said["vm-2"], GuestError)
    assert "got signal=9" in str(said["vm-2"])
    assert [said[vm] for vm in ("vm-0", "vm-1", "vm-3")] == [b""] * 3
    assert "/run/out" not in guests.files["vm-2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((JOBS, "--section=none"), "No job(s) defined"), (("/none",), "unable to open '/none' job file")],
)
def test_a_wrong_command_line_is_refused(guests: Guests, arguments: tuple[str, ...], words: str) -> None:
    said = guests.run(*arguments)["vm-0"]
    assert isinstance(said, GuestError)
    assert words in str(said)


def test_the_job_file_is_read_as_fio_reads_it() -> None:
    job = sections("; note\n[global]\nbs=64k\nrate=5M\n[a]\nthinktime=7\nstartdelay=250ms\nbs=4k\n")[0]
    found = (job.size("bs"), job.size("rate"), job.us("thinktime", "us"), job.us("startdelay"), job.has("rw"))
    assert found == (4096, 5 << 20, 7.0, 250_000.0, False)


def test_bins_and_ranks_are_those_of_the_parser() -> None:
    for index in range(0, BINS - 640, 7):
        assert bin_middle(edges(index).lower_ns) == middle_ns(index)
    check: Callable[[int, float], bool] = lambda n, q: fio_rank(n, q) == parsers_rank(n, q)  # noqa: E731
    assert all(check(n, q) for n in (1, 20, 99, 1000, 6_096_372) for q in (50.0, 95.0, 99.0, 99.9))
