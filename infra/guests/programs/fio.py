"""fio in a virtual guest: reads a real job file, waits its time, writes real json+.

Known are the options that the io stage uses: a layout job (`rw=write` with `filename_format`), and
random reads and writes over `opendir`. The data itself is a line in a file of the guest's disk.
"""

from collections.abc import Callable
from datetime import datetime
from math import floor

from infra.clock import Clock
from infra.cluster.virtual.ceph import Work
from infra.cluster.virtual.ceph_clients import CephClients
from infra.cluster.virtual.machines import Machine, Machines
from infra.errors import GuestError
from infra.guests.programs import Invocation
from infra.guests.programs.fio_job import FioSection, section_named, sections
from infra.guests.programs.fio_output import Measured, bin_middle, document

MARK = ".dataset"
"""File of a data set's folder that stands for its content: `files bytes`."""
DIED = "fio: pid=1742, got signal=9"


class Fio:
    """The program; `dies` says of which VirtualMachines fio is killed half-way."""

    def __init__(self, machines: Machines, clock: Clock, clients: CephClients) -> None:
        self._machines = machines
        self._clock = clock
        self._clients = clients
        self.dies: Callable[[str], bool] = lambda vm: False

    async def __call__(self, invocation: Invocation) -> bytes:
        """`fio [--output-format=json+] [--output=FILE] [--section=NAME] JOBFILE`."""
        options = dict(each[2:].split("=", 1) for each in invocation.arguments if each.startswith("--"))
        names = [each for each in invocation.arguments if not each.startswith("--")]
        machine = self._machines.machine(invocation.vm)
        if machine is None or not names or names[0] not in invocation.files:
            raise _failed(invocation, f"unable to open '{names[0] if names else ''}' job file", 1)
        text = invocation.files[names[0]].decode()
        job = (
            section_named(text, options["section"])
            if "section" in options
            else next(iter(sections(text)), None)
        )
        if job is None:
            raise _failed(invocation, "No job(s) defined", 1)
        body = await self._job(invocation, machine, job)
        if "output" not in options:
            return body
        invocation.files[options["output"]] = body
        return b""

    async def _job(self, invocation: Invocation, machine: Machine, job: FioSection) -> bytes:
        if job.has("filename_format"):
            return await self._layout(invocation, job)
        mark = f"{job.text('opendir').rstrip('/')}/{MARK}"
        if mark not in invocation.files:
            raise _failed(invocation, "opendir added 0 files\nfio: you need to specify size=", 1)
        dataset_bytes = int(invocation.files[mark].split()[1])
        await self._clock.sleep(job.us("startdelay") / 1e6)
        measured_s = job.us("runtime") / 1e6
        client = self._clients.join(machine.disk, work_of(job, dataset_bytes), measured_s)
        ended = False
        try:
            await self._clock.sleep(job.us("ramp_time") / 1e6 + measured_s)
            if self.dies(invocation.vm):
                raise _failed(invocation, DIED, 128)
            counts = self._clients.leave(client).counts
            ended = True
        finally:
            if not ended:
                self._clients.drop(client)
        bins = [(bin_middle(ns), count) for ns, count in counts]
        block = job.size("bs", 4096)
        note = f"fio: opendir added {int(invocation.files[mark].split()[0])} files\n".encode()
        return note + document(Measured(job, bins, block, round(measured_s * 1000), self._now()))

    async def _layout(self, invocation: Invocation, job: FioSection) -> bytes:
        """Write every file of every clone once."""
        files = int(job.text("numjobs", "1")) * int(job.text("nrfiles", "1"))
        whole = files * job.size("filesize")
        begun_ns = self._clock.now_ns()
        await self._clients.fill(whole)
        took_ms = max(1, (self._clock.now_ns() - begun_ns) // 10**6)
        invocation.files[f"{job.text('directory').rstrip('/')}/{MARK}"] = f"{files} {whole}".encode()
        block = job.size("bs", 4096)
        each_ns = max(1000, took_ms * 10**6 * block * int(job.text("numjobs", "1")) // whole)
        bins = [(bin_middle(each_ns), whole // block)]
        return document(Measured(job, bins, block, took_ms, self._now()))

    def _now(self) -> datetime:
        return self._clock.wall()


def work_of(job: FioSection, dataset_bytes: int) -> Work:
    """What a measuring job asks of its image."""
    block = job.size("bs", 4096)
    return Work(
        pattern="write" if job.text("rw").endswith("write") else "read",
        block_bytes=block,
        per_s=job.size("rate") / block,
        depth=max(1, floor(float(job.text("iodepth", "1")))),
        pause_us=job.us("thinktime", "us"),
        dataset_bytes=dataset_bytes,
    )


def _failed(invocation: Invocation, words: str, code: int) -> GuestError:
    line = words.replace("\n", "; ")
    return GuestError(f"guest {invocation.vm}: {line} (exit {code})")
