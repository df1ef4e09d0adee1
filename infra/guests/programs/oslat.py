"""oslat of a virtual guest: a busy loop that sees every stall whole; the JSON of rt-tests 2.4."""

from infra.guests.programs.cyclictest import head
from infra.guests.programs.delays import (
    Histogram,
    by_microsecond,
    drawn,
    exponential,
    lognormal,
    merged,
    seldom,
)
from infra.guests.programs.tool_run import ToolRun, as_json, mean_of

BUCKETS = 32
FREQUENCY_MHZ = 2000


def result(run: ToolRun) -> bytes:
    """The file that `--json` names; the last bucket holds everything from there on."""
    buckets = int(run.option("-b", "--bucket-size") or BUCKETS)
    cpus = run.cpus("-c", "--cpu-list")
    threads = {str(i): _thread(run, cpu, buckets) for i, cpu in enumerate(cpus)}
    return as_json(head(run, "oslat") | {"num_threads": len(cpus), "thread": threads})


def _gaps(run: ToolRun, cpu: int) -> Histogram:
    """Turns of the loop by how long they took, whole microseconds, 1 for all that are shorter."""
    model, name = run.model, f"{run.vm} oslat {run.name} {cpu}"
    turns = int(run.seconds * 1e9 / model.loop_ns)
    # as many meetings per microsecond as a wake-up has
    share = model.noise_share * model.loop_ns / 1000 / model.wake_us if run.noisy else 0.0
    ordinary = by_microsecond(seldom(share, exponential(model.noise_us)))
    stalls = [each * model.stall_per_s * run.seconds for each in stall_lengths(run)]
    # a stall is one turn: as shares of all turns, so that their number is drawn, too
    long = drawn(
        run.draws, f"{name} stalls", turns, [1.0 - sum(stalls) / turns, *(s / turns for s in stalls)]
    )
    short = drawn(run.draws, name, long.pop(0), ordinary)
    # oslat rounds up: a turn of less than 1 us is in bucket 1
    return merged([{value + 1: count} for value, count in short.items()] + [long])


def stall_lengths(run: ToolRun) -> list[float]:
    """Shares of the stalls by length, whole microseconds."""
    return by_microsecond(lognormal(run.model.stall_us, run.model.stall_spread))


def _thread(run: ToolRun, cpu: int, buckets: int) -> dict[str, object]:
    found = _gaps(run, cpu)
    shown = {str(value): count for value, count in found.items() if value < buckets}
    last = sum(count for value, count in found.items() if value >= buckets)
    return {
        "cpu": cpu,
        "freq": FREQUENCY_MHZ,
        "min": min(found),
        "avg": round(mean_of(found), 6),
        "max": max(found),
        "duration": round(run.seconds, 3),
        "histogram": shown | ({str(buckets): last} if last else {}),
    }
