"""cyclictest of a virtual guest: the JSON of rt-tests 2.4, stray colons of its keys included."""

from datetime import timedelta
from email.utils import format_datetime
from typing import Any

from infra.guests.programs.delays import Histogram, drawn
from infra.guests.programs.tool_run import ToolRun, as_json, mean_of, wake_ups

VERSION = "2.40"


def result(run: ToolRun) -> bytes:
    """The file that `--json` names."""
    slots = int(run.option("-h", "--histogram") or 0)
    cpus = run.cpus("-a", "--affinity")
    threads = {str(i): _thread(_latencies(run, cpu), cpu, slots) for i, cpu in enumerate(cpus)}
    document = head(run, "cyclictest") | {"num_threads": len(cpus), "resolution_in_ns": 0, "thread": threads}
    return as_json(document)


def head(run: ToolRun, tool: str) -> dict[str, Any]:
    """What all of rt-tests' files begin with."""
    ended = run.started + timedelta(seconds=run.seconds)
    return {
        "file_version": 1,
        "cmdline:": " ".join((tool, *run.arguments)),
        "rt_test_version:": VERSION,
        "start_time": format_datetime(run.started),
        "end_time": format_datetime(ended),
        "return_code": 0,
        "sysinfo": {**run.system, "realtime": 1},
    }


def _latencies(run: ToolRun, cpu: int) -> Histogram:
    samples = int(run.seconds * 1e6 / int(run.option("-i", "--interval") or 1000))
    return drawn(run.draws, f"{run.vm} cyclictest {run.name} {cpu}", samples, wake_ups(run.model, run.noisy))


def _thread(found: Histogram, cpu: int, slots: int) -> dict[str, object]:
    return {
        "histogram": {str(value): count for value, count in found.items() if value < slots},
        "cycles": sum(found.values()),
        "min": min(found),
        "max": max(found),
        "avg": round(mean_of(found), 2),
        "cpu": cpu,
        "node": 0,
    }
