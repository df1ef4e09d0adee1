"""The per-snapshot restore lock of ceph-csi: restores of one snapshot are served one at a time.

A restore that finds the lock taken is Aborted and tried again by external-provisioner with
exponential back-off (ceph-csi#6354). Simulating each of those retries would be up to a million
events, so the lock is a queue with a service time, and the retries are counted.
"""

from dataclasses import dataclass, field
from math import ceil


@dataclass(slots=True)
class RestoreLock:
    """One queue per snapshot; `aborts` counts the attempts that found the lock taken."""

    retry_first_s: float
    retry_max_s: float
    aborts: int = 0
    _free_ns: dict[str, int] = field(default_factory=dict)

    def reserve(self, snapshot: str, now_ns: int, service_s: float) -> int:
        """Queue for the snapshot's lock; returns the moment at which the restore has let it go."""
        starts = max(now_ns, self._free_ns.get(snapshot, now_ns))
        self.aborts += self._retries((starts - now_ns) / 1e9)
        done = self._free_ns[snapshot] = starts + round(service_s * 1e9)
        return done

    def _retries(self, waited_s: float) -> int:
        """Attempts that fail during a wait, with a delay that doubles from first to max."""
        delay, elapsed, retries = self.retry_first_s, 0.0, 0
        while elapsed < waited_s:
            if delay >= self.retry_max_s:
                return retries + ceil((waited_s - elapsed) / self.retry_max_s)
            elapsed += delay
            delay = min(delay * 2, self.retry_max_s)
            retries += 1
        return retries
