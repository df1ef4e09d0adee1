"""jitterdebugger of a virtual guest: `results.json` as version 0.3 writes it."""

from infra.guests.programs.delays import Histogram, drawn
from infra.guests.programs.tool_run import ToolRun, as_json, mean_of, wake_ups

SLOTS = 1000
"""Longer latencies are counted, but have no slot in the histogram."""
INTERVAL_US = 1000


def result(run: ToolRun) -> bytes:
    """The file; keys under "cpu" are numbers of threads, not of CPUs."""
    threads = {str(i): _thread(_latencies(run, cpu)) for i, cpu in enumerate(run.cpus("-a", "--affinity"))}
    system = {**run.system, "cpus_online": 4, "resolution_in_ns": 1000}
    return as_json({"version": 3, "sysinfo": system, "cpu": threads})


def _latencies(run: ToolRun, cpu: int) -> Histogram:
    interval_us = int(run.option("-i", "--interval") or INTERVAL_US)
    samples = int(run.seconds * 1e6 / interval_us)
    name = f"{run.vm} jitterdebugger {run.name} {cpu}"
    return drawn(run.draws, name, samples, wake_ups(run.model, run.noisy))


def _thread(found: Histogram) -> dict[str, object]:
    return {
        "histogram": {str(value): count for value, count in found.items() if value < SLOTS},
        "count": sum(found.values()),
        "min": min(found),
        "max": max(found),
        "avg": round(mean_of(found), 2),
    }
