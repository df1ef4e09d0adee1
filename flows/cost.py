"""What this process took of its machine: memory and CPU."""

import resource
import sys
import time
from pathlib import Path


def peak_rss_mib() -> float:
    """The largest resident memory of this process so far, MiB."""
    status = Path("/proc/self/status")
    if status.is_file():
        # getrusage would count in the peak of the process that started this one
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return round(int(line.split()[1]) / 1024, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts KiB, macOS bytes.
    return round(peak / (1024 if sys.platform != "darwin" else 1024**2), 1)


def cpu_s() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
